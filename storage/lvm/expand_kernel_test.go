package lvm_test

import (
	"errors"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// wantSize holds LVM's metadata and the kernel's device to a size in bytes.
func wantSize(t *testing.T, name string, want int64) {
	t.Helper()
	v, err := group().Inspect(unended(), name)
	if err != nil || v.Bytes != want {
		t.Errorf("Inspect = %+v, %v, want %d bytes", v, err, want)
	}
	if size, err := blockdev.Size("/dev/" + vg + "/" + name); err != nil || size != want {
		t.Errorf("Size of the device = %d, %v, want %d", size, err, want)
	}
}

// The agent dies at any moment of an expand: the volume has the old size or the new one,
// its data, and after the same expand again the new one.
func TestGroup_expandCrash_kernel(t *testing.T) {
	hosttest.Need(t, "dm_mod", "bin:lvm")
	if !hosttest.InChild(t) {
		if _, err := emptyGroup(t).Create(t.Context(), spec(crashed, 8<<20)); err != nil {
			t.Fatal(err)
		}
		write(t, 0xa5)
	}
	size := int64(8 << 20)
	if hosttest.InChild(t) { // another process: only the volume knows how large it is
		var err error
		if size, err = blockdev.Size(crashedPath); err != nil {
			t.Fatal(err)
		}
	}
	expand := func() error {
		_, err := group().Expand(unended(), crashed, owner, size+extent)
		return err
	}
	hosttest.EachCrash(t, expand, func(t *testing.T) {
		if err := expand(); err != nil {
			t.Fatalf("Expand again = %v", err)
		}
		size += extent
		wantSize(t, crashed, size)
		if got := read(t); got[0] != 0xa5 || got[len(got)-1] != 0xa5 {
			t.Error("the volume lost its data")
		}
	})
}

// A tool that was killed after it wrote the metadata: --driverloaded n makes it forget
// the kernel altogether.
func TestGroup_oldMapping_kernel(t *testing.T) {
	g := emptyGroup(t)
	if _, err := g.Create(t.Context(), spec("pvc-1", 2*extent)); err != nil {
		t.Fatal(err)
	}
	tool(t, "lvextend", "--driverloaded", "n", "--size", "16m", vg+"/pvc-1")
	if size, err := blockdev.Size("/dev/" + vg + "/pvc-1"); err != nil || size != 2*extent {
		t.Fatalf("Size = %d, %v, want the mapping to be the old one", size, err)
	}
	if v, err := g.Expand(t.Context(), "pvc-1", owner, 4*extent); err != nil || v.Bytes != 4*extent {
		t.Errorf("Expand = %+v, %v", v, err)
	}
	wantSize(t, "pvc-1", 4*extent)
}

// A group that is full to the last extent says so.
func TestGroup_expandFull_kernel(t *testing.T) {
	g := emptyGroup(t)
	p, err := g.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Create(t.Context(), spec("pvc-1", extent)); err != nil {
		t.Fatal(err)
	}
	if v, err := g.Expand(t.Context(), "pvc-1", owner, p.Capacity.Total); err != nil || v.Bytes != p.Capacity.Total {
		t.Errorf("Expand to the last extent = %+v, %v", v, err)
	}
	if v, err := g.Expand(t.Context(), "pvc-1", owner, p.Capacity.Total+1); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("Expand past it = %+v, %v, want ErrNoSpace", v, err)
	}
	wantSize(t, "pvc-1", p.Capacity.Total)
}
