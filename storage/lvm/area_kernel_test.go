package lvm_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// H-54: the group's metadata area fills. Before it is full nothing is made or grown any more,
// in words of what mends it; what is there is used and deleted as before.
func TestGroup_metadataArea_kernel(t *testing.T) {
	g := emptyGroup(t)
	ctx := t.Context()
	if _, err := g.Create(ctx, spec("pvc-1", extent)); err != nil {
		t.Fatal(err)
	}
	free := fillArea(t, 80)
	if err := g.Health(ctx); err == nil || !strings.Contains(err.Error(), "more than 80 %") {
		t.Errorf("Health with %d bytes free = %v, want it to complain", free, err)
	}
	if _, err := g.Create(ctx, spec("pvc-2", extent)); err != nil {
		t.Errorf("Create with %d bytes free = %v", free, err)
	}
	free = fillArea(t, 99)
	const text = "vgextend --metadatasize"
	_, err := g.Create(ctx, spec("pvc-3", extent))
	wantError(t, "Create", err, storage.ErrNoSpace, text)
	_, err = g.Expand(ctx, "pvc-1", owner, 2*extent)
	wantError(t, "Expand", err, storage.ErrNoSpace, text)
	wantError(t, "Health", g.Health(ctx), storage.ErrNoSpace, text)
	if _, err := g.Activate(ctx, "pvc-1", owner); err != nil {
		t.Errorf("Activate with %d bytes free = %v", free, err)
	}
	if _, err := g.Create(ctx, spec("pvc-2", extent)); err != nil {
		t.Errorf("Create of what is there with %d bytes free = %v", free, err)
	}
	if err := g.Delete(ctx, "pvc-1", owner); err != nil {
		t.Errorf("Delete with %d bytes free = %v", free, err)
	}
	old := strings.TrimSpace(tool(t, "vgs", "--noheadings", "--options", "pv_name", vg))
	tool(t, "vgextend", "--metadatasize", "8m", vg, hosttest.Disk(t, 1)) // as it says
	tool(t, "pvchange", "--metadataignore", "y", old)
	if err := g.Health(ctx); err != nil {
		t.Errorf("Health with a larger area = %v", err)
	}
	if _, err := g.Create(ctx, spec("pvc-3", extent)); err != nil {
		t.Errorf("Create with a larger area = %v", err)
	}
}

// fillArea adds tags to the group until so many percent of what its metadata may have are used.
func fillArea(t *testing.T, percent int64) (free int64) {
	t.Helper()
	for i := 0; ; i++ {
		var half, size int64
		out := tool(t, "vgs", "--noheadings", "--units", "b", "--nosuffix", "--options", "vg_mda_size,vg_mda_free", vg)
		if _, err := fmt.Sscan(out, &size, &free); err != nil {
			t.Fatal(err)
		}
		if half = size / 2; free*100 <= half*(100-percent) {
			return free
		}
		argv := []string{"vgchange"}
		for tag := range min(100, 1+(free-half*(100-percent)/100)/1030) {
			name := fmt.Sprintf("%d-%d-%d-", percent, i, tag)
			argv = append(argv, "--addtag", name+strings.Repeat("x", 1000-len(name)))
		}
		tool(t, append(argv, vg)...)
	}
}
