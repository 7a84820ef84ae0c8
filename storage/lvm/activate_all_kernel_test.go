package lvm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/lvm"
)

// counting is the host's programs with a count.
type counting struct {
	host.Exec
	runs int
}

func (c *counting) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	c.runs++
	return c.Exec.Run(ctx, name, args...)
}

// After a reboot without udev every volume's device is there again at the price of one, and
// nothing is activated that is not asked for, or not the owner's.
func TestGroup_ActivateAll_kernel(t *testing.T) {
	g := emptyGroup(t)
	owners := map[string]storage.Owner{"pvc-absent": owner, "pvc-theirs": owner, "pvc-unfinished": owner}
	for i := range 5 {
		name := fmt.Sprintf("pvc-%d", i)
		if _, err := g.Create(t.Context(), spec(name, extent)); err != nil {
			t.Fatal(err)
		}
		owners[name] = owner
	}
	for name, tags := range map[string][]string{
		"pvc-theirs": nil, "pvc-unasked": {"--addtag", ownerTag},
		"pvc-unfinished": {"--addtag", ownerTag, "--addtag", "pillar-incomplete"},
	} {
		tool(t, append([]string{"lvcreate", "--yes", "--extents", "1", "--name", name, vg}, tags...)...)
	}
	tool(t, "vgchange", "--activate", "n", vg)

	for _, want := range []int{3, 1} { // the second finds them active
		count := &counting{}
		g := lvm.New(count, "", lvm.Config{VolumeGroup: vg})
		results := g.ActivateAll(t.Context(), owners)
		for name, want := range map[string]error{"pvc-absent": storage.ErrNotFound, "pvc-theirs": storage.ErrForeign, "pvc-unfinished": storage.ErrPrecondition} {
			if !errors.Is(results[name].Err, want) {
				t.Errorf("%s: %v, want %v", name, results[name], want)
			}
		}
		for i := range 5 {
			name := fmt.Sprintf("pvc-%d", i)
			if size, err := blockdev.Size("/dev/" + vg + "/" + name); err != nil || size != extent || results[name].Err != nil || results[name].Device == (storage.DeviceID{}) {
				t.Errorf("%s: %v; its device has %d bytes, %v", name, results[name], size, err)
			}
		}
		if len(results) != len(owners) || count.runs != want {
			t.Errorf("%d results by %d runs, want %d by %d", len(results), count.runs, len(owners), want)
		}
	}
	active := tool(t, "lvs", "--noheadings", "--options", "lv_name", "--select", "lv_active=active", vg)
	if got := len(strings.Fields(active)); got != 5 {
		t.Errorf("active are %q, want the five", active)
	}
}

// A node that a killed tool left behind, or took with it, is repaired for its volume alone.
func TestGroup_ActivateAll_repairs_kernel(t *testing.T) {
	g := emptyGroup(t)
	for _, name := range []string{"pvc-1", "pvc-2"} {
		if _, err := g.Create(t.Context(), spec(name, extent)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove("/dev/" + vg + "/pvc-2"); err != nil {
		t.Fatal(err)
	}
	for name, r := range g.ActivateAll(t.Context(), map[string]storage.Owner{"pvc-1": owner, "pvc-2": owner}) {
		if _, look := os.Stat("/dev/" + vg + "/" + name); r.Err != nil || look != nil {
			t.Errorf("%s: %v, its node: %v", name, r.Err, look)
		}
	}
}
