package lvm_test

import (
	"errors"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// B-224, N-14: between the look and the hold an administrator makes the LV anew. Path and
// numbers are the same; the device is not, and is not held.
func TestGroup_replaced_kernel(t *testing.T) {
	g := emptyGroup(t)
	hosttest.NoLeaks(t)
	if _, err := g.Create(t.Context(), spec("pvc-1", extent)); err != nil {
		t.Fatal(err)
	}
	looked, err := g.Activate(t.Context(), "pvc-1", owner)
	if err != nil {
		t.Fatal(err)
	}
	all := g.ActivateAll(t.Context(), map[string]storage.Owner{"pvc-1": owner})["pvc-1"]
	if all.Device != looked.Device || all.Device.Sequence == 0 {
		t.Errorf("ActivateAll = %+v, Activate = %+v, want the same device", all, looked.Device)
	}
	release, err := blockdev.HoldSame("", looked.DevicePath, looked.Device)
	if err != nil {
		t.Fatalf("HoldSame of what was looked at = %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	tool(t, "lvremove", "--yes", vg+"/pvc-1")
	tool(t, "lvcreate", "--yes", "--addtag", ownerTag, "--extents", "1", "--name", "pvc-1", vg)
	if _, err := blockdev.HoldSame("", looked.DevicePath, looked.Device); !errors.Is(err, storage.ErrPrecondition) {
		t.Errorf("HoldSame of a device made anew = %v, want ErrPrecondition", err)
	}
}
