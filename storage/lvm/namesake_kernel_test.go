package lvm_test

import (
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// A disk that an administrator put in has a group of the pool's name. LVM says no more which
// is meant: nothing is done to either, and the answer says what to do. See also the agent's
// test of a tenant's disk, which is not even looked at.
func TestGroup_namesake_kernel(t *testing.T) {
	g := emptyGroup(t)
	if _, err := g.Create(t.Context(), spec("pvc-1", extent)); err != nil {
		t.Fatal(err)
	}
	disk := hosttest.Disk(t, 1)
	elsewhere := `devices{dir="` + t.TempDir() + `" scan="/dev" filter=["a|^` + disk + `$|","r|.*|"]}` // vgcreate takes no name that has a directory
	tool(t, "vgcreate", "--yes", "--config", elsewhere, vg, disk)

	const text = "vgrename"
	wantError(t, "Health", g.Health(t.Context()), storage.ErrPrecondition, text)
	_, err := g.Create(t.Context(), spec("pvc-2", extent))
	wantError(t, "Create", err, storage.ErrPrecondition, text)
	_, err = g.Inspect(t.Context(), "pvc-1")
	wantError(t, "Inspect", err, storage.ErrPrecondition, text)
	_, err = g.Inspect(t.Context(), "pvc-2")
	wantError(t, "Inspect of nothing", err, storage.ErrPrecondition, text)
	wantError(t, "Delete", g.Delete(t.Context(), "pvc-1", owner), storage.ErrPrecondition, text)
	_, err = g.Pool(t.Context())
	wantError(t, "Pool", err, storage.ErrPrecondition, text)

	hosttest.Disk(t, 1) // clears it
	if err := g.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete when it is gone = %v", err)
	}
}
