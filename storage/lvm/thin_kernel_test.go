package lvm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/storagetest"
)

const tp = "tp"

// chunk is the thin pools' chunk size in bytes: of pools of 20 MiB or 100 MiB each is a whole
// number of hundredths of a percent, so that LVM's figures are exact.
const chunk = 256 << 10

// thinPool makes a thin pool of so many MiB in a group of its own.
func thinPool(t testing.TB, mib int) *lvm.Group {
	t.Helper()
	emptyGroup(t)
	hosttest.Need(t, "dm_thin_pool", "bin:thin_check")
	tool(t, "lvcreate", "--yes", "--type", "thin-pool", "--size", fmt.Sprintf("%dm", mib), "--chunksize", "256k", "--poolmetadatasize", "4m", "--name", tp, vg)
	return thinGroup()
}

func thinGroup() *lvm.Group {
	return lvm.New(host.Exec{}, "", lvm.Config{VolumeGroup: vg, ThinPool: tp})
}

func thin(name string, bytes int64) storage.Spec {
	s := spec(name, bytes)
	s.LVM = &storage.LVMParams{VolumeGroup: vg, ThinPool: tp, Mode: lvm.Thin}
	return s
}

func TestGroup_thinContract_kernel(t *testing.T) {
	thinPool(t, 20)
	thinFixture := func(t testing.TB) storagetest.Fixture {
		f := fixture(t, thinGroup()) // after a reboot it is a new process that looks
		t.Cleanup(func() {
			_, _ = distribution(unended(), "lvremove", "--yes", "--select", "pool_lv="+tp, vg)
		})
		f.Spec, f.Slack, f.Overcommits = thin, 4*chunk, true
		f.Stranger = func(t testing.TB, name string, bytes int64) {
			tool(t, "lvcreate", "--yes", "--type", "thin", "--virtualsize", fmt.Sprintf("%db", bytes), "--thinpool", tp, "--name", name, vg)
		}
		return f
	}
	storagetest.Run(t, thinFixture)
	t.Run("one volume fills the pool", func(t *testing.T) { storagetest.Brim(t, thinFixture(t)) })
}

// N-9: a pool that does not zero what it hands out is refused until it does.
func TestGroup_thinNoZero_kernel(t *testing.T) {
	g := thinPool(t, 20)
	tool(t, "lvchange", "--zero", "n", vg+"/"+tp)
	_, err := g.Create(t.Context(), thin("pvc-1", 8<<20))
	wantError(t, "Create", err, storage.ErrPrecondition, "lvchange --zero y "+vg+"/"+tp)
	wantError(t, "Health", g.Health(t.Context()), storage.ErrPrecondition, "lvchange --zero y")
	tool(t, "lvchange", "--zero", "y", vg+"/"+tp)
	if _, err := g.Create(t.Context(), thin("pvc-1", 8<<20)); err != nil {
		t.Errorf("Create = %v", err)
	}
}

// H-50: a volume goes alone. Its snapshots stay, and so does the pool when nothing else is
// in it, with its use known.
func TestGroup_thinDelete_kernel(t *testing.T) {
	g := thinPool(t, 20)
	if _, err := g.Create(t.Context(), thin("pvc-1", 8<<20)); err != nil {
		t.Fatal(err)
	}
	tool(t, "lvcreate", "--snapshot", "--name", "copy", vg+"/pvc-1")
	tool(t, "lvchange", "--addtag", ownerTag, vg+"/copy", vg+"/"+tp)
	if _, err := g.Activate(t.Context(), "copy", owner); !errors.Is(err, storage.ErrPrecondition) {
		t.Errorf("Activate of a snapshot = %v, want ErrPrecondition", err)
	}
	for _, name := range []string{"copy", tp} {
		if err := g.Delete(t.Context(), name, owner); !errors.Is(err, storage.ErrPrecondition) {
			t.Errorf("Delete(%s) = %v, want ErrPrecondition", name, err)
		}
	}
	if err := g.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete of a snapshot's origin = %v", err)
	}
	if _, err := g.Inspect(t.Context(), "copy"); err != nil {
		t.Errorf("Inspect of its snapshot = %v", err)
	}
	tool(t, "lvremove", "--yes", vg+"/copy")
	if p, err := g.Pool(t.Context()); err != nil || p.Capacity.Available != p.Capacity.Total {
		t.Errorf("Pool = %+v, %v, want all of it available", p, err)
	}
}

// H-53: metadata that thin_check refuses. Nothing is activated, every call says how to
// repair it, and none does it.
func TestGroup_thinDamaged_kernel(t *testing.T) {
	g := thinPool(t, 20)
	if _, err := g.Create(t.Context(), thin("pvc-1", 8<<20)); err != nil {
		t.Fatal(err)
	}
	if err := writeThin("pvc-1", 0, 4*chunk); err != nil {
		t.Fatal(err)
	}
	undo := damage(t)
	g = thinGroup() // after a reboot
	_, activate := g.Activate(t.Context(), "pvc-1", owner)
	_, create := g.Create(t.Context(), thin("pvc-2", 8<<20))
	_, pool := thinGroup().Pool(t.Context())
	for call, err := range map[string]error{"Activate": activate, "Create": create, "Pool": pool, "Health": thinGroup().Health(t.Context())} {
		wantError(t, call, err, storage.ErrPrecondition, "lvconvert --repair "+vg+"/"+tp)
	}
	if _, err := g.Create(t.Context(), spec("pvc-linear", extent)); err != nil {
		t.Errorf("Create of a linear volume beside it = %v", err)
	}
	undo()
	if _, err := g.Activate(t.Context(), "pvc-1", owner); err != nil {
		t.Fatalf("Activate after the repair = %v", err)
	}
	wantFull(t, "pvc-1", 4*chunk, 0xa5)
}

// damage deactivates the pool and spoils the superblock of its metadata, wherever on the
// disk that is.
func damage(t *testing.T) (undo func()) {
	t.Helper()
	var first, sectors, at int64
	var major, minor int
	table := tool(t, "dmsetup", "table", strings.ReplaceAll(vg, "-", "--")+"-"+tp+"_tmeta")
	if _, err := fmt.Sscanf(table, "%d %d linear %d:%d %d", &first, &sectors, &major, &minor, &at); err != nil {
		t.Fatalf("%s: %v", table, err)
	}
	tool(t, "vgchange", "--activate", "n", vg)
	f, err := blockdev.Open(fmt.Sprintf("/dev/block/%d:%d", major, minor), os.O_RDWR|os.O_SYNC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	superblock := make([]byte, 4096)
	if _, err := f.ReadAt(superblock, at*512); err != nil {
		t.Fatal(err)
	}
	write := func(block []byte) {
		if _, err := f.WriteAt(block, at*512); err != nil {
			t.Fatal(err)
		}
	}
	spoilt := bytes.Clone(superblock) // no zeroes: the kernel takes them for a new pool
	for i := range 64 {
		spoilt[i] ^= 0xff
	}
	write(spoilt)
	return func() { write(superblock) }
}
