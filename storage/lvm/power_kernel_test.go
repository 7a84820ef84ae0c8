package lvm_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/host/powercuttest"
	"github.com/pillar-csi/pillar/storage/lvm"
)

const (
	mib = 1 << 20

	cutVolume = "pvc-1" // what the operations are about
	neighbour = "pvc-2" // never touched by them
)

// oneDisk shows LVM's tools the disk whose power is cut and no other: what it was recorded
// on has the same physical volume.
type oneDisk struct{}

func (oneDisk) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	return host.Exec{Env: []string{"DM_DISABLE_UDEV=1"}}.Run(ctx, name, append(args, "--devices", powercuttest.Path)...)
}

// powerOp is an operation on cutVolume.
type powerOp struct {
	name          string
	do            func(g *lvm.Group) error
	before, after int64 // its bytes, 0: there is none
	content       byte  // what its first 2 MiB hold afterwards, and all the time if it was there before
}

// powerOps is the life of a volume, in its order.
func powerOps(spec func(string, int64) storage.Spec) []powerOp {
	return []powerOp{
		{
			name:  "create",
			do:    func(g *lvm.Group) error { _, err := g.Create(unended(), spec(cutVolume, 2*mib)); return err },
			after: 2 * mib,
		},
		{
			name:   "expand",
			do:     func(g *lvm.Group) error { _, err := g.Expand(unended(), cutVolume, owner, 4*mib); return err },
			before: 2 * mib, after: 4 * mib, content: 0x77,
		},
		{
			name:   "delete",
			do:     func(g *lvm.Group) error { return g.Delete(unended(), cutVolume, owner) },
			before: 4 * mib, content: 0x77,
		},
	}
}

// B-495: the power fails between any two writes to the pool, with parts of what the disk had
// in its cache. The group can be read, the neighbour is untouched, the volume is as before
// the operation or as after it and shows nothing of an earlier one (B-221, B-222, N-9), the
// same call again succeeds; what had been answered is there.
//
// LVM itself writes its metadata and then, without a flush between, the header that leads to
// it: a disk that puts the header down first loses the group. Nothing above LVM can help, so
// that the disk here keeps the order of these writes.
func TestGroup_powerCut_kernel(t *testing.T) {
	tests := map[string]struct {
		group *lvm.Group
		pool  []string // lvcreate's arguments
		spec  func(string, int64) storage.Spec
	}{
		"linear": {
			group: lvm.New(oneDisk{}, "", lvm.Config{VolumeGroup: vg}),
			spec:  spec,
		},
		"thin": {
			group: lvm.New(oneDisk{}, "", lvm.Config{VolumeGroup: vg, ThinPool: tp}),
			pool:  []string{"--type", "thin-pool", "--size", "8m", "--chunksize", "64k", "--poolmetadatasize", "2m", "--name", tp, vg},
			spec:  thin,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hosttest.Need(t, "dm_mod", "dm_thin_pool", "bin:lvm")
			disk := powercuttest.New(t, 24*mib)
			disk.Ordered, disk.Cuts = mib, 6
			disk.Prepare(t, func() {
				fill(t, powercuttest.Path, 0xa5) // of deleted volumes
				run(t, "vgcreate", "--yes", "--physicalextentsize", "1m", vg, powercuttest.Path)
				if tt.pool != nil {
					run(t, "lvcreate", append([]string{"--yes"}, tt.pool...)...)
				}
				if _, err := tt.group.Create(t.Context(), tt.spec(neighbour, mib)); err != nil {
					t.Fatal(err)
				}
				fill(t, "/dev/"+vg+"/"+neighbour, 0x5a)
				off(t)
			})
			for _, op := range powerOps(tt.spec) {
				t.Run(op.name, func(t *testing.T) { op.cut(t, disk, tt.group) })
			}
		})
	}
}

func (op powerOp) cut(t *testing.T, disk *powercuttest.Disk, g *lvm.Group) {
	if op.before > 0 {
		disk.Prepare(t, func() {
			on(t, g)
			fill(t, "/dev/"+vg+"/"+cutVolume, op.content)
			off(t)
		})
	}
	disk.Record(t, func(mark func(string)) {
		on(t, g)
		mark(powercuttest.Begun)
		if err := op.do(g); err != nil {
			t.Fatal(err)
		}
		mark(powercuttest.Answered)
		off(t)
	})
	disk.EachCut(t, func(t *testing.T, cut powercuttest.Cut) {
		defer off(t)
		op.check(t, g, cut)
		if err := op.do(g); err != nil {
			t.Fatalf("the same call again = %v", err)
		}
		if op.after == 0 {
			if err := on(t, g)[cutVolume]; !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("after the same call again Activate = %v, want ErrNotFound", err)
			}
			return
		}
		if size, err := blockdev.Size("/dev/" + vg + "/" + cutVolume); size != op.after || err != nil {
			t.Errorf("after the same call again it has %d bytes, %v, want %d", size, err, op.after)
		}
		wantFull(t, cutVolume, 2*mib, op.content)
	})
}

// check looks at what the cut left.
func (op powerOp) check(t *testing.T, g *lvm.Group, cut powercuttest.Cut) {
	found := on(t, g)
	if found[neighbour] != nil {
		t.Fatalf("Activate(%s) = %v", neighbour, found[neighbour])
	}
	wantFull(t, neighbour, mib, 0x5a)
	may := []int64{op.before, op.after}
	if cut.Passed(powercuttest.Answered) {
		may = []int64{op.after}
	}
	v, err := g.Inspect(t.Context(), cutVolume)
	if err != nil && !errors.Is(err, storage.ErrNotFound) || !slices.Contains(may, v.Bytes) {
		t.Errorf("Inspect = %+v, %v, want one of %d bytes", v, err, may)
	}
	if err == nil && v.Owner != owner {
		t.Errorf("owner = %q, want %q", v.Owner, owner)
	}
	if found[cutVolume] == nil {
		wantFull(t, cutVolume, 2*mib, op.content)
	} else if cut.Passed(powercuttest.Answered) && op.after > 0 {
		t.Errorf("Activate(%s) = %v", cutVolume, found[cutVolume])
	}
}

// on activates the volumes and answers each one's error.
func on(t *testing.T, g *lvm.Group) map[string]error {
	t.Helper()
	errs := map[string]error{}
	for name, r := range g.ActivateAll(t.Context(), map[string]storage.Owner{cutVolume: owner, neighbour: owner}) {
		errs[name] = r.Err
	}
	return errs
}

// off takes the volumes' devices away, as the end of a machine does.
func off(t *testing.T) {
	t.Helper()
	run(t, "vgchange", "--activate", "n", vg)
	if err := os.RemoveAll("/dev/" + vg); err != nil {
		t.Error(err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if _, err := (oneDisk{}).Run(unended(), name, args...); err != nil {
		t.Fatal(err)
	}
}

// fill writes one byte all over a device and has it on the disk.
func fill(t *testing.T, path string, content byte) {
	t.Helper()
	size, err := blockdev.Size(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := blockdev.Open(path, os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{content}, int(size)), 0)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// wantFull wants so many bytes from a volume's start to be content.
func wantFull(t *testing.T, name string, size int, content byte) {
	t.Helper()
	f, err := blockdev.Open("/dev/"+vg+"/"+name, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, size)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{content}, size)) {
		t.Errorf("%s does not hold %#x throughout: %v", name, content, err)
	}
}
