package lvm

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

func lvextend() hosttest.Step { return ran("lvextend", "--yes", "--size", "8388608b", "vg0/pvc-1") }

func TestGroup_Expand(t *testing.T) {
	small, grown := lvs("vg0/pvc-1", plain("pvc-1", extent)), lvs("vg0/pvc-1", plain("pvc-1", 2*extent))
	tests := map[string]struct {
		steps  []hosttest.Step
		opened bool
	}{
		"B-225 grows":           {[]hosttest.Step{small, vgs(extent), lvextend(), grown}, true},
		"B-452 is as large":     {[]hosttest.Step{grown, vgs(0)}, true},
		"inactive":              {[]hosttest.Step{lvs("vg0/pvc-1", inactive("pvc-1", extent)), vgs(extent), lvextend(), lvs("vg0/pvc-1", inactive("pvc-1", 2*extent))}, false},
		"inactive and as large": {[]hosttest.Step{lvs("vg0/pvc-1", inactive("pvc-1", 2*extent)), vgs(0)}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := dirty()
			got, err := group(t, d, tt.steps...).Expand(t.Context(), "pvc-1", owner, 2*extent-1)
			if err != nil || got != want {
				t.Errorf("Expand = %+v, %v, want %+v", got, err, want)
			}
			if opened := len(d.opened) > 0; opened != tt.opened {
				t.Errorf("looked at the device: %v, want %v", opened, tt.opened)
			}
		})
	}
}

// Every failure keeps its kind and runs nothing after it.
func TestGroup_Expand_failures(t *testing.T) {
	small := lvs("vg0/pvc-1", plain("pvc-1", extent))
	odd := "lvmlockd: nobody knows this text"
	tests := map[string]struct {
		steps []hosttest.Step
		want  error
		text  string
	}{
		"N-9 unfinished":       {[]hosttest.Step{lvs("vg0/pvc-1", unfinished("pvc-1", extent))}, storage.ErrPrecondition, "never finished"},
		"another kind":         {[]hosttest.Step{lvs("vg0/pvc-1", lvRow("pvc-1", extent, "thin,sparse", "public", ownerTag+owner, "active", "254", "3"))}, storage.ErrPrecondition, "thin"},
		"absent":               {[]hosttest.Step{absent()}, storage.ErrNotFound, ""},
		"no group":             {[]hosttest.Step{fails(small, `Volume group "vg0" not found`)}, storage.ErrPrecondition, ""},
		"B-204 unknown text":   {[]hosttest.Step{fails(small, odd)}, nil, odd},
		"B-452 would shrink":   {[]hosttest.Step{lvs("vg0/pvc-1", plain("pvc-1", 3*extent)), vgs(0)}, storage.ErrOutOfRange, "cannot shrink from 12582912 to 8388608 bytes"},
		"full before the tool": {[]hosttest.Step{small, vgs(extent - 1)}, storage.ErrNoSpace, "4194304 bytes needed"},
		"full says the tool":   {[]hosttest.Step{small, vgs(extent), fails(lvextend(), "Insufficient free space: 1 extents needed, but only 0 available")}, storage.ErrNoSpace, ""},
		"the tool fails":       {[]hosttest.Step{small, vgs(extent), fails(lvextend(), odd)}, nil, odd},
		"grown to another":     {[]hosttest.Step{small, vgs(extent), lvextend(), small}, nil, "lvextend made 4194304 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := group(t, nil, tt.steps...).Expand(t.Context(), "pvc-1", owner, 2*extent)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Expand = %+v, %v, want %v with %q", got, err, tt.want, tt.text)
			}
		})
	}
	if got, err := group(t, nil).Expand(t.Context(), "--resizefs", owner, extent); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("Expand of an option = %+v, %v, want ErrInvalid", got, err)
	}
}

// A tool that was killed between metadata and mapping: the retry loads the mapping.
func TestGroup_Expand_oldMapping(t *testing.T) {
	there := lvs("vg0/pvc-1", plain("pvc-1", 2*extent))
	g := group(t, nil, there, vgs(0), ran("lvchange", "--refresh", "vg0/pvc-1"), there)
	answers := []error{errOldMapping, nil}
	g.open = func(_ report, flag int) (device, error) {
		err := answers[0]
		answers = answers[1:]
		if flag != os.O_RDONLY {
			t.Errorf("opened with flags %#x", flag)
		}
		return dirty(), err
	}
	if got, err := g.Expand(t.Context(), "pvc-1", owner, 2*extent); err != nil || got != want {
		t.Errorf("Expand = %+v, %v, want %+v", got, err, want)
	}
}

// A restore looks at volumes without their locks: one may be expanded between lvs and the
// look at its device. That is no fault of the device.
func TestGroup_Activate_expandedMeanwhile(t *testing.T) {
	refresh := ran("lvchange", "--refresh", "vg0/pvc-1")
	grown := lvs("vg0/pvc-1", plain("pvc-1", 3*extent))
	calls := map[string]struct {
		steps []hosttest.Step
		do    func(g *Group) error
	}{
		"one": {[]hosttest.Step{lvs("vg0/pvc-1", plain("pvc-1", 2*extent)), refresh, grown}, func(g *Group) error {
			_, err := g.Activate(t.Context(), "pvc-1", owner)
			return err
		}},
		"many": {[]hosttest.Step{lvs("vg0", plain("pvc-1", 2*extent)), refresh, grown}, func(g *Group) error {
			return g.ActivateAll(t.Context(), map[string]storage.Owner{"pvc-1": owner})["pvc-1"].Err
		}},
	}
	for name, tt := range calls {
		t.Run(name, func(t *testing.T) {
			g := group(t, dirty(), tt.steps...)
			g.open = func(lv report, _ int) (device, error) {
				if lv.size != 3*extent {
					return nil, errOldMapping
				}
				return dirty(), nil
			}
			if err := tt.do(g); err != nil {
				t.Errorf("= %v", err)
			}
		})
	}
}
