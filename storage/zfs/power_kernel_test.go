package zfs_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/powercuttest"
)

const (
	mib = 1 << 20

	cutVolume = "pvc-1" // what the operations are about
	neighbour = "pvc-2" // never touched by them
)

// powerOp is an operation on cutVolume.
type powerOp struct {
	name          string
	do            func() error
	before, after int64 // its bytes, 0: there is none
}

// powerOps is the life of a volume, in its order.
var powerOps = []powerOp{
	{
		name:  "create",
		do:    func() error { _, err := pool().Create(unended(), whole(cutVolume, mib)); return err },
		after: mib,
	},
	{
		name:   "expand",
		do:     func() error { _, err := pool().Expand(unended(), cutVolume, owner, 2*mib); return err },
		before: mib, after: 2 * mib,
	},
	{
		name:   "delete",
		do:     func() error { return pool().Delete(unended(), cutVolume, owner) },
		before: 2 * mib,
	},
}

// B-495: the power fails between any two writes to the pool, with parts of what the disk had
// in its cache. The pool is imported, the neighbour is untouched, the volume is as before the
// operation or as after it, the same call again succeeds; what had been answered is there.
func TestPool_powerCut_kernel(t *testing.T) {
	needZFS(t)
	disk := powercuttest.New(t, 96*mib)
	disk.Cuts = 10
	disk.Prepare(t, func() {
		tool(t, "zpool", "create", "-f", "-o", "cachefile=none", "-O", "mountpoint=none", tank, powercuttest.Path)
		tool(t, "zfs", "create", "-p", tank+"/"+parent)
		v, err := pool().Create(t.Context(), whole(neighbour, mib))
		if err != nil {
			t.Fatal(err)
		}
		f := open(t, v.DevicePath, os.O_WRONLY)
		_, err = f.WriteAt(bytes.Repeat([]byte{0x5a}, mib), 0)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		leave(t)
	})
	for _, op := range powerOps {
		t.Run(op.name, func(t *testing.T) { op.cut(t, disk) })
	}
}

// enter imports the pool, as a machine's owner does after a boot.
func enter(t *testing.T) {
	t.Helper()
	tool(t, "zpool", "import", "-f", "-N", "-d", powercuttest.Path, "-o", "cachefile=none", tank)
}

func leave(t *testing.T) {
	t.Helper()
	tool(t, "udevadm", "settle") // it opens what it has not seen
	tool(t, "zpool", "export", tank)
}

func (op powerOp) cut(t *testing.T, disk *powercuttest.Disk) {
	disk.Record(t, func(mark func(string)) {
		enter(t)
		mark(powercuttest.Begun)
		if err := op.do(); err != nil {
			t.Fatal(err)
		}
		mark(powercuttest.Answered)
		leave(t)
	})
	disk.EachCut(t, func(t *testing.T, cut powercuttest.Cut) {
		enter(t)
		defer leave(t)
		f := open(t, "/dev/zvol/"+below+neighbour, os.O_RDONLY)
		got := make([]byte, mib)
		_, err := f.ReadAt(got, 0)
		if err := errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, bytes.Repeat([]byte{0x5a}, mib)) {
			t.Errorf("%s is not what it was: %v", neighbour, err)
		}
		may := []int64{op.before, op.after}
		if cut.Passed(powercuttest.Answered) {
			may = []int64{op.after}
		}
		wantSize(t, may...)
		if err := op.do(); err != nil {
			t.Fatalf("the same call again = %v", err)
		}
		wantSize(t, op.after)
	})
}

// wantSize wants cutVolume, its owner's, to have one of these sizes; 0 is none.
func wantSize(t *testing.T, may ...int64) {
	t.Helper()
	v, err := pool().Inspect(t.Context(), cutVolume)
	if err != nil && !errors.Is(err, storage.ErrNotFound) || !slices.Contains(may, v.Bytes) || err == nil && v.Owner != owner {
		t.Errorf("Inspect = %+v, %v, want %s's with one of %d bytes", v, err, owner, may)
	}
}
