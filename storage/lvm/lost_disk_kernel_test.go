package lvm_test

import (
	"fmt"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/lvm"
)

// awayName is a device on the second spare disk, which a test takes away. It begins after the
// disk's start, so that no PV is seen twice.
const awayName = "pillar-away"

// A group that misses a disk says so, and refuses what LVM would; volumes on the others are
// used as before, and any can be deleted. When the disk is back all is well again.
func TestGroup_lostDisk_kernel(t *testing.T) {
	hosttest.Need(t, "dm_mod", "bin:lvm", "bin:dmsetup")
	removeGroup() // of a test that was killed
	table := fmt.Sprintf("0 131072 linear %s 2048", hosttest.Disk(t, 1))
	tool(t, "dmsetup", "create", awayName, "--table", table)
	t.Cleanup(func() { _, _ = distribution(unended(), "dmsetup", "remove", "--retry", awayName) })
	tool(t, "vgcreate", "--yes", "--physicalextentsize", "4m", vg, hosttest.Disk(t, 0), "/dev/mapper/"+awayName)
	t.Cleanup(removeGroup)
	g := group()
	// Which disk LVM takes is up to their numbers: this one if its minor is high.
	tool(t, "pvchange", "--allocatable", "n", "/dev/mapper/"+awayName)
	if _, err := g.Create(t.Context(), spec("pvc-1", 2*extent)); err != nil {
		t.Fatal(err)
	}
	tool(t, "pvchange", "--allocatable", "y", "/dev/mapper/"+awayName)
	tool(t, "lvcreate", "--yes", "--size", "8m", "--addtag", ownerTag, "--name", "pvc-2", vg, "/dev/mapper/"+awayName)
	tool(t, "lvchange", "--activate", "n", vg+"/pvc-2")
	if _, err := distribution(t.Context(), "dmsetup", "remove", "--retry", awayName); err != nil {
		t.Fatalf("%v\n%s", err, tool(t, "dmsetup", "ls", "--tree"))
	}

	const text = "misses 1 of its disks"
	wantError(t, "Health", g.Health(t.Context()), storage.ErrPrecondition, text)
	_, err := g.Create(t.Context(), spec("pvc-3", 2*extent))
	wantError(t, "Create", err, storage.ErrPrecondition, text)
	_, err = g.Expand(t.Context(), "pvc-1", owner, 4*extent)
	wantError(t, "Expand", err, storage.ErrPrecondition, text)
	_, err = g.Activate(t.Context(), "pvc-2", owner)
	wantError(t, "Activate", err, storage.ErrPrecondition, "partial LV")
	results := g.ActivateAll(t.Context(), map[string]storage.Owner{"pvc-1": owner, "pvc-2": owner})
	if results["pvc-1"].Err != nil || results["pvc-2"].Err == nil {
		t.Errorf("ActivateAll = %v, want pvc-2 alone to fail", results)
	}
	if err := g.Delete(t.Context(), "pvc-2", owner); err != nil {
		t.Errorf("Delete = %v", err)
	}

	tool(t, "dmsetup", "create", awayName, "--table", table)
	if err := g.Health(t.Context()); err != nil {
		t.Errorf("Health with the disk back = %v", err)
	}
	if _, err := g.Create(t.Context(), spec("pvc-2", 2*extent)); err != nil {
		t.Errorf("Create with the disk back = %v", err)
	}
}

// A storage node boots, and a disk of its thin pool comes only after the agent's first look:
// the pool is woken then.
func TestGroup_thinPoolLate_kernel(t *testing.T) {
	hosttest.Need(t, "dm_mod", "dm_thin_pool", "bin:lvm", "bin:dmsetup")
	removeGroup() // of a test that was killed
	table := fmt.Sprintf("0 131072 linear %s 2048", hosttest.Disk(t, 1))
	tool(t, "dmsetup", "create", awayName, "--table", table)
	t.Cleanup(func() { _, _ = distribution(unended(), "dmsetup", "remove", "--retry", awayName) })
	tool(t, "vgcreate", "--yes", "--physicalextentsize", "4m", vg, hosttest.Disk(t, 0), "/dev/mapper/"+awayName)
	t.Cleanup(removeGroup)
	tool(t, "lvcreate", "--yes", "--type", "thin-pool", "--size", "20m", "--poolmetadatasize", "4m", "--name", tp, vg, "/dev/mapper/"+awayName)
	tool(t, "vgchange", "--activate", "n", vg)
	tool(t, "dmsetup", "remove", "--retry", awayName)

	g := lvm.New(host.Exec{}, "", lvm.Config{VolumeGroup: vg, ThinPool: tp})
	wantError(t, "Health", g.Health(t.Context()), storage.ErrPrecondition, "misses 1 of its disks")
	tool(t, "dmsetup", "create", awayName, "--table", table)
	if err := g.Health(t.Context()); err != nil {
		t.Errorf("Health with the disk back = %v", err)
	}
	if pool, err := g.Pool(t.Context()); err != nil || pool.Capacity.Available != 20<<20 {
		t.Errorf("Pool = %+v, %v, want 20 MiB available", pool, err)
	}
}
