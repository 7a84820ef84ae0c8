package zfs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pillar-csi/pillar/storage"
)

// Activate implements storage.Backend: the zvol's device is there and has a link that leads
// to it. One that does not come at once is storage.ErrPrecondition and an fs.ErrNotExist.
func (p *Pool) Activate(ctx context.Context, name string, owner storage.Owner) (storage.Volume, error) {
	zvol, err := p.usable(ctx, name, owner)
	var v storage.Volume
	if err == nil {
		r := p.activate(ctx, zvol)[zvol.name]
		v, err = p.volume(name, zvol), r.Err
		v.Device = r.Device
	}
	if err != nil {
		return storage.Volume{}, fmt.Errorf("activate zvol %s: %w", p.cfg.dataset(name), err)
	}
	return v, nil
}

// ActivateAll is Activate for many volumes, with one question to zfs and one look at the
// devices: were each looked for by itself, hundreds that are missing would each have all of
// the others' devices opened. It answers one result per name.
func (p *Pool) ActivateAll(ctx context.Context, owners map[string]storage.Owner) map[string]storage.Activated {
	results, names := map[string]storage.Activated{}, map[string]string{}
	list, err := p.zvols(ctx)
	there := map[string]report{}
	for _, zvol := range list {
		there[zvol.name] = zvol
	}
	var zvols []report
	for name, owner := range owners {
		zvol, ok := there[p.cfg.dataset(name)]
		wrong := err
		if wrong == nil {
			wrong = p.cfg.CheckName(name)
		}
		switch {
		case wrong != nil:
		case !ok:
			wrong = storage.ErrNotFound
		default:
			wrong = zvol.check(owner)
		}
		if results[name] = (storage.Activated{Err: wrong}); wrong == nil {
			zvols, names[zvol.name] = append(zvols, zvol), name
		}
	}
	for dataset, r := range p.activate(ctx, zvols...) {
		results[names[dataset]] = r
	}
	for name, r := range results {
		if r.Err != nil {
			results[name] = storage.Activated{Err: fmt.Errorf("activate zvol %s: %w", p.cfg.dataset(name), r.Err)}
		}
	}
	return results
}

// activate answers what became of zvols by their datasets.
func (p *Pool) activate(ctx context.Context, zvols ...report) map[string]storage.Activated {
	results := map[string]storage.Activated{}
	var can []report
	for _, zvol := range zvols {
		if p.nodes.mode(zvol) == "none" {
			results[zvol.name] = storage.Activated{Err: fmt.Errorf("%w: its volmode is none, or default and the module's zvol_volmode is 3, so it has no device; fix: zfs set volmode=full %s", storage.ErrPrecondition, zvol.name)}
		} else {
			can = append(can, zvol)
		}
	}
	for dataset, r := range p.nodes.settle(ctx, can...) {
		results[dataset] = r
	}
	owed := slices.DeleteFunc(can, func(zvol report) bool { return !errors.Is(results[zvol.name].Err, errNoDevice) })
	for some := range slices.Chunk(owed, commands) {
		if ctx.Err() != nil || !p.pay(ctx, some, results) {
			break
		}
	}
	return results
}

// pay has the kernel make devices that it owes, notes what became of them, and tells whether
// one came. If none did they are not owed, but late or not wanted (zvol_inhibit_dev), and
// hundreds of others are not worth a transaction each.
func (p *Pool) pay(ctx context.Context, owed []report, results map[string]storage.Activated) (came bool) {
	errs := make([]error, len(owed))
	var asking sync.WaitGroup
	for i := range owed {
		asking.Go(func() {
			owed[i].mode = p.nodes.mode(owed[i])
			errs[i] = p.owed(ctx, owed[i])
		})
	}
	asking.Wait()
	var asked []report
	for i, zvol := range owed {
		if errs[i] != nil {
			results[zvol.name] = storage.Activated{Err: errs[i]}
		} else {
			asked = append(asked, zvol)
		}
	}
	for dataset, r := range p.nodes.settle(ctx, asked...) {
		results[dataset] = r
		came = came || r.Err == nil
	}
	return came
}

// owed has the kernel make a device that it owes: now and then making one fails, at a create
// or an import, without a word (openzfs/zfs#15487). Writing the mode in effect makes a
// missing device and leaves one that is there alone; writing "default" would replace it
// (zvol_set_volmode_impl in module/zfs/zvol.c).
func (p *Pool) owed(ctx context.Context, zvol report) error {
	_, err := p.tool(ctx, "zfs", "set", "volmode="+zvol.mode, zvol.name)
	return err
}
