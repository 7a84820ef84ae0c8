package lvm

import (
	"errors"
	"testing"

	"github.com/pillar-csi/pillar/storage"
)

// A group that cannot be read says nothing about any volume, least of all that it is gone.
func TestGroup_ActivateAll_unreadable(t *testing.T) {
	g := group(t, nil, fails(lvs("vg0"), "Volume group \"vg0\" not found\n  Cannot process volume group vg0"))
	results := g.ActivateAll(t.Context(), map[string]storage.Owner{"pvc-1": owner, "pvc-2": owner})
	for name, r := range results {
		if err := r.Err; !errors.Is(err, storage.ErrPrecondition) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s: %v, want ErrPrecondition", name, err)
		}
	}
	if len(results) != 2 {
		t.Errorf("%d results, want 2", len(results))
	}
}

// lvchange activates what it can; LVM says which that are.
func TestGroup_ActivateAll_partly(t *testing.T) {
	g := group(t, dirty(),
		lvs("vg0", inactive("pvc-1", 2*extent), inactive("pvc-2", 2*extent)),
		fails(ran("lvchange", "--activate", "y", "vg0/pvc-1", "vg0/pvc-2"), "device-mapper: reload ioctl on (253:1) failed"),
		lvs("vg0", plain("pvc-1", 2*extent), inactive("pvc-2", 2*extent)),
	)
	results := g.ActivateAll(t.Context(), map[string]storage.Owner{"pvc-1": owner, "pvc-2": owner})
	if results["pvc-1"].Err != nil || results["pvc-2"].Err == nil {
		t.Errorf("results = %v, want pvc-2 alone to fail", results)
	}
}
