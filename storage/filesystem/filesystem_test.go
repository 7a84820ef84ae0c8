package filesystem

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

const mib = 1 << 20

// disk is a file that plays a block device.
type disk struct {
	*os.File
	size int64
}

func (d disk) Path() string { return d.Name() }
func (d disk) Size() int64  { return d.size }

func newDisk(t *testing.T, content map[int64]string) disk {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for off, text := range content {
		if _, err := f.WriteAt([]byte(text), off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Truncate(64 * mib); err != nil {
		t.Fatal(err)
	}
	return disk{f, 64 * mib}
}

// mkfs records the programs asked for and lets each leave a mark on the disk.
type mkfs struct {
	argv  [][]string
	mark  map[int64]string
	fails error
}

func (m *mkfs) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	m.argv = append(m.argv, append([]string{name}, args...))
	f, err := os.OpenFile(args[len(args)-1], os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for off, text := range m.mark {
		if _, err := f.WriteAt([]byte(text), off); err != nil {
			return nil, err
		}
	}
	return nil, m.fails
}

var (
	ext4Mark = map[int64]string{1080: "\x53\xef", 1024 + 0x60: "\x40"} // extents
	xfsMark  = map[int64]string{0: "XFSB"}
)

func TestTools_Prepare(t *testing.T) {
	broken := errors.New("exit status 1")
	tests := map[string]struct {
		on    map[int64]string
		want  Want
		tool  mkfs
		argv  []string // without the device; nil: no program may run
		error error    // nil: success; errAny: any
	}{
		"blank, ext4":        {nil, Want{Type: "ext4", Format: true}, mkfs{mark: ext4Mark}, []string{"mkfs.ext4", "-F", "-m0"}, nil},
		"blank, xfs":         {nil, Want{Type: "xfs", Format: true}, mkfs{mark: xfsMark}, []string{"mkfs.xfs", "-i", "nrext64=0,sparse=1", "-m", "bigtime=1,crc=1,rmapbt=0"}, nil},
		"user options last":  {nil, Want{Type: "ext4", Format: true, Options: []string{"-m", "5"}}, mkfs{mark: ext4Mark}, []string{"mkfs.ext4", "-F", "-m0", "-m", "5"}, nil},
		"force given once":   {nil, Want{Type: "ext4", Format: true, Options: []string{"-F", "-q", "-F"}}, mkfs{mark: ext4Mark}, []string{"mkfs.ext4", "-F", "-m0", "-q"}, nil},
		"already there":      {ext4Mark, Want{Type: "ext4", Format: true}, mkfs{}, nil, nil},
		"another filesystem": {xfsMark, Want{Type: "ext4", Format: true}, mkfs{}, nil, storage.ErrPrecondition},
		"a partition table":  {map[int64]string{450: "\x83", 510: "\x55\xaa"}, Want{Type: "ext4", Format: true}, mkfs{}, nil, storage.ErrPrecondition},
		"may not format":     {nil, Want{Type: "ext4"}, mkfs{}, nil, storage.ErrPrecondition},
		"option refused":     {nil, Want{Type: "ext4", Format: true, Options: []string{"-n"}}, mkfs{}, nil, storage.ErrInvalid},
		"mkfs fails":         {nil, Want{Type: "ext4", Format: true}, mkfs{fails: broken}, []string{"mkfs.ext4", "-F", "-m0"}, broken},
		"mkfs leaves nothing": {nil, Want{Type: "ext4", Format: true}, mkfs{}, []string{"mkfs.ext4", "-F", "-m0"},
			errAny},
		"mkfs makes another": {nil, Want{Type: "ext4", Format: true}, mkfs{mark: xfsMark}, []string{"mkfs.ext4", "-F", "-m0"}, errAny},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dev := newDisk(t, tc.on)
			formatted, err := Tools{Run: &tc.tool, Root: withProfile(t, profileText)}.Prepare(t.Context(), dev, tc.want)
			if !is(err, tc.error) || formatted != (tc.argv != nil) {
				t.Errorf("Prepare = %v, %v, want error %v", formatted, err, tc.error)
			}
			var want [][]string
			if tc.argv != nil {
				want = [][]string{append(tc.argv, dev.Path())}
			}
			if diff := cmp.Diff(want, tc.tool.argv); diff != "" {
				t.Errorf("programs run (-want +got):\n%s", diff)
			}
		})
	}
}

var errAny = errors.New("any error")

func is(err, want error) bool {
	if want == errAny {
		return err != nil
	}
	return errors.Is(err, want) && (err == nil) == (want == nil)
}

// short is a device that ends before it should: the one thing that must never run mkfs.
type short struct{ disk }

func (s short) Size() int64 { return s.size + mib }

func TestTools_PrepareUnknown(t *testing.T) {
	tool := mkfs{mark: ext4Mark}
	_, err := Tools{Run: &tool}.Prepare(t.Context(), short{newDisk(t, nil)}, Want{Type: "ext4", Format: true})
	if err == nil || len(tool.argv) != 0 {
		t.Errorf("Prepare of an unreadable device = %v after %v, want an error and no program", err, tool.argv)
	}
}

func TestTools_PrepareReal(t *testing.T) {
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			if _, err := exec.LookPath("mkfs." + fstype); err != nil {
				t.Skipf("mkfs.%s is not installed", fstype)
			}
			dev := newDisk(t, nil)
			dev.size = 512 * mib
			if err := dev.Truncate(dev.size); err != nil {
				t.Fatal(err)
			}
			tools := Tools{Run: host.Exec{}}
			for _, first := range []bool{true, false} {
				formatted, err := tools.Prepare(t.Context(), dev, Want{Type: fstype, Format: true})
				if err != nil || formatted != first {
					t.Errorf("Prepare = %v, %v, want formatted %v", formatted, err, first)
				}
			}
			other := map[string]string{"ext4": "xfs", "xfs": "ext4"}[fstype]
			_, err := tools.Prepare(t.Context(), dev, Want{Type: other, Format: true})
			if !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), fstype) {
				t.Errorf("Prepare as %s = %v, want ErrPrecondition naming %s", other, err, fstype)
			}
		})
	}
}

// TestTools_PrepareFinishes begins a format and lets the caller give up meanwhile.
func TestTools_PrepareFinishes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	tool := &impatient{mkfs{mark: ext4Mark}, cancel}
	if _, err := (Tools{Run: tool}).Prepare(ctx, newDisk(t, nil), Want{Type: "ext4", Format: true}); err != nil {
		t.Errorf("Prepare = %v, want the format finished", err)
	}
}

// impatient is a mkfs during which the caller gives up.
type impatient struct {
	mkfs
	giveUp func()
}

func (i *impatient) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	i.giveUp()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return i.mkfs.Run(ctx, name, args...)
}
