package fencing

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/host/powercuttest"
)

// effectBegan is the mark at the start of an operation's effect.
const effectBegan = "the effect began"

// smallest lets mkfs.xfs, as the tests of its authors do, make less than 300 MiB.
var smallest = host.Exec{Env: []string{"TEST_DIR=/", "TEST_DEV=" + powercuttest.Path, "QA_CHECK_FS=1"}}

// neighbour has a mark of its own that no operation on volume may touch.
const neighbour = "vg0/neighbour"

// N-6, B-156 on the filesystems that a state directory lies on: the power fails between any
// two writes of an operation. The journal is replayed, and the mark is an old or a new one;
// none from before the effect once that had begun; the last one once the call had answered.
func TestStore_powerCut_kernel(t *testing.T) {
	all := slices.Sorted(maps.Keys(crashCases()))
	filesystems := map[string]struct {
		mkfs  []string
		cases []string
	}{
		"ext4": {[]string{"mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"}, all},
		"xfs":  {[]string{"mkfs.xfs", "-q", "-f", "-K"}, []string{"first create", "delete"}}, // takes twice as long
	}
	for fs, tt := range filesystems {
		t.Run(fs, func(t *testing.T) {
			hosttest.Need(t, "bin:"+tt.mkfs[0])
			d := powercutDir{fs: fs, root: t.TempDir()}
			disk := powercuttest.New(t, 64<<20)
			disk.Cuts = 24
			disk.Prepare(t, func() {
				if _, err := smallest.Run(t.Context(), tt.mkfs[0], append(tt.mkfs[1:], powercuttest.Path)...); err != nil {
					t.Fatal(err)
				}
				d.mounted(t, func() {
					for _, name := range tt.cases {
						d.prepare(t, name, crashCases()[name])
					}
				})
			})
			for _, name := range tt.cases {
				t.Run(name, func(t *testing.T) { d.cut(t, disk, name, crashCases()[name]) })
			}
		})
	}
}

// powercutDir is where the disk is mounted.
type powercutDir struct {
	fs, root string
}

func (d powercutDir) dir(name string) string { return filepath.Join(d.root, durable.Name(name)) }

// mounted runs do while the disk is mounted.
func (d powercutDir) mounted(t *testing.T, do func()) {
	t.Helper()
	if err := unix.Mount(powercuttest.Path, d.root, d.fs, 0, ""); err != nil {
		t.Fatalf("mount %s: %v", powercuttest.Path, err)
	}
	defer func() {
		if err := unix.Unmount(d.root, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}()
	do()
}

// prepare gives a case its directory with the marks from before.
func (d powercutDir) prepare(t *testing.T, name string, tt crashCase) {
	t.Helper()
	s, err := Open(d.dir(name))
	if err != nil {
		t.Fatal(err)
	}
	if tt.before != nil {
		err = s.write(tt.before)
	}
	other := live("n", 7)
	other.Volume = neighbour
	if err := errors.Join(err, s.write(other)); err != nil {
		t.Fatal(err)
	}
}

func (d powercutDir) cut(t *testing.T, disk *powercuttest.Disk, name string, tt crashCase) {
	disk.Record(t, func(mark func(string)) {
		d.mounted(t, func() {
			s, err := Open(d.dir(name))
			if err != nil {
				t.Fatal(err)
			}
			mark(powercuttest.Begun)
			_, err = s.Do(t.Context(), volume, tt.tok, tt.op, func(context.Context) error {
				mark(effectBegan)
				return tt.effect()
			})
			if err != nil && !errors.Is(err, ErrForeign) {
				t.Fatal(err)
			}
			mark(powercuttest.Answered)
		})
	})
	disk.EachCut(t, func(t *testing.T, cut powercuttest.Cut) {
		d.mounted(t, func() { d.check(t, cut, name, tt) })
	})
}

func (d powercutDir) check(t *testing.T, cut powercuttest.Cut, name string, tt crashCase) {
	s, err := Open(d.dir(name))
	if err != nil {
		t.Fatal(err)
	}
	may := append([]*Mark{tt.before}, tt.after...)
	switch {
	case cut.Passed(powercuttest.Answered):
		may = tt.after[len(tt.after)-1:]
	case cut.Passed(effectBegan):
		may = tt.after // of which during is one
	}
	if got, err := s.Mark(volume); err != nil || !slices.ContainsFunc(may, got.equal) {
		t.Errorf("Mark = %+v, %v, want one of %+v", got, err, may)
	}
	if got, err := s.Mark(neighbour); err != nil || got == nil || got.Owner != "n" || got.Generation != 7 {
		t.Errorf("Mark(%s) = %+v, %v", neighbour, got, err)
	}
	tt.again(t, s)
	files, err := os.ReadDir(d.dir(name))
	if err != nil || len(files) != 2 {
		t.Errorf("left in the directory: %v, %v, want two marks", files, err)
	}
}
