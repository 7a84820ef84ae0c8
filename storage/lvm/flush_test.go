package lvm

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// pv is a group's disk as Config.Open answers it.
type pv struct {
	Device
	sync func() error
}

func (p pv) Sync() error  { return p.sync() }
func (p pv) Close() error { return nil }

func pvs(stdout string) hosttest.Step {
	return says(ran("vgs", "--reportformat", "json", "--options", "pv_name", "vg0"), stdout)
}

func TestGroup_flushDisks(t *testing.T) {
	eio := errors.New("input/output error")
	noGroup := "Volume group \"vg0\" not found\n  Cannot process volume group vg0"
	tests := map[string]struct {
		step    hosttest.Step
		flushed []string
		want    error // nil: none
		fails   bool
	}{
		"every disk once":    {pvs(`{"report":[{"vg":[{"pv_name":"/dev/sda"},{"pv_name":"/dev/sdb"}]}]}`), []string{"/dev/sda", "/dev/sdb"}, nil, false},
		"one is missing":     {pvs(`{"report":[{"vg":[{"pv_name":"/dev/sda"},{"pv_name":"[unknown]"}]}]}`), []string{"/dev/sda"}, nil, false},
		"one cannot flush":   {pvs(`{"report":[{"vg":[{"pv_name":"/dev/bad"},{"pv_name":"/dev/sdb"}]}]}`), []string{"/dev/bad"}, eio, true},
		"none is known":      {pvs(`{"report":[{"vg":[]}]}`), nil, nil, true},
		"no report":          {pvs(``), nil, nil, true},
		"the group is away":  {fails(pvs(``), noGroup), nil, storage.ErrPrecondition, true},
		"words we know none": {fails(pvs(``), "lvmlockd: nobody knows this text"), nil, nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var flushed []string
			g := New(hosttest.Script(t, tt.step), "", Config{VolumeGroup: "vg0", Open: func(path string, flag int) (Device, error) {
				flushed = append(flushed, path)
				return pv{sync: func() error {
					if flag != os.O_RDONLY || path == "/dev/bad" {
						return eio
					}
					return nil
				}}, nil
			}})
			err := g.flushDisks(t.Context())
			if diff := cmp.Diff(tt.flushed, flushed); diff != "" {
				t.Errorf("flushed (-want +got):\n%s", diff)
			}
			if (err != nil) != tt.fails || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("flushDisks = %v, want %v (an error: %v)", err, tt.want, tt.fails)
			}
		})
	}
}

// Success is answered after the flush, and never without it.
func TestGroup_successIsFlushed(t *testing.T) {
	full := errors.New("input/output error")
	there := lvs("vg0/pvc-1", plain("pvc-1", 2*extent))
	tests := map[string]struct {
		steps []hosttest.Step
		do    func(g *Group) error
	}{
		"a create that finds its LV": {[]hosttest.Step{vgs(0), there}, func(g *Group) error {
			_, err := g.Create(t.Context(), request(2*extent))
			return err
		}},
		"an expand with nothing to do": {[]hosttest.Step{there, vgs(0)}, func(g *Group) error {
			_, err := g.Expand(t.Context(), "pvc-1", owner, 2*extent)
			return err
		}},
		"a delete that finds nothing": {[]hosttest.Step{absent()}, func(g *Group) error {
			return g.Delete(t.Context(), "pvc-1", owner)
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := group(t, dirty(), tt.steps...)
			g.flush = func(context.Context) error { return full }
			if err := tt.do(g); !errors.Is(err, full) {
				t.Errorf("= %v, want %v", err, full)
			}
		})
	}
}
