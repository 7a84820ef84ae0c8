package lvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pillar-csi/pillar/storage"
)

// activateAtOnce is how many LVs one lvchange activates. Each has its own result; what one
// run that is killed leaves open is bounded.
const activateAtOnce = 100

// ActivateAll is Activate for many volumes at the price of one: every LVM tool reads the
// metadata of the whole group, so hundreds of runs after a reboot would take minutes. It
// answers one result per name; without an error the device is there and is this LV's. Only the LVs that
// are named are activated, each only if Activate would.
func (g *Group) ActivateAll(ctx context.Context, owners map[string]storage.Owner) map[string]storage.Activated {
	results := map[string]storage.Activated{}
	lvs := g.look(ctx, owners, results)
	var off []string
	for _, name := range slices.Sorted(maps.Keys(lvs)) {
		if !lvs[name].active {
			off = append(off, name)
		}
	}
	if len(off) > 0 {
		failed := g.activateNamed(ctx, off)
		lvs = g.look(ctx, owners, results)
		for _, name := range off {
			if lv, ok := lvs[name]; ok && !lv.active {
				results[name] = storage.Activated{Err: errors.Join(errors.New("it is not active"), failed)}
				delete(lvs, name)
			}
		}
	}
	for name, lv := range lvs {
		id, err := g.settle(ctx, lv)
		results[name] = storage.Activated{Device: id, Err: err}
	}
	for name, r := range results {
		if r.Err != nil {
			results[name] = storage.Activated{Err: fmt.Errorf("activate LV %s: %w", g.target(name), r.Err)}
		}
	}
	return results
}

// look reports those of the owners' LVs that may be activated, by name, and notes what is
// wrong with the others.
func (g *Group) look(ctx context.Context, owners map[string]storage.Owner, results map[string]storage.Activated) map[string]report {
	all, err := g.lvs(ctx, g.cfg.VolumeGroup)
	err = missing(err)
	listed := map[string]report{}
	for _, lv := range all {
		listed[lv.name] = lv
	}
	usable := map[string]report{}
	for name, owner := range owners {
		lv, ok := listed[name]
		var wrong error
		switch {
		case err != nil:
			wrong = err
		case CheckName(name) != nil:
			wrong = CheckName(name)
		case !ok:
			wrong = fmt.Errorf("%w: volume group %s has no such LV", storage.ErrNotFound, g.cfg.VolumeGroup)
		default:
			wrong = cmp.Or(g.owned(lv, owner), g.finished(lv))
		}
		if results[name] = (storage.Activated{Err: wrong}); wrong == nil {
			usable[name] = lv
		}
	}
	return usable
}

// activateNamed activates LVs. One that fails does not keep lvchange from the others; which
// did is asked of LVM.
func (g *Group) activateNamed(ctx context.Context, names []string) error {
	var failed error
	for some := range slices.Chunk(names, activateAtOnce) {
		args := []string{"--activate", "y"}
		for _, name := range some {
			args = append(args, g.target(name))
		}
		_, err := g.lvm(ctx, "lvchange", args...)
		failed = errors.Join(failed, err)
	}
	return failed
}
