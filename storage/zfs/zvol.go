package zfs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	"github.com/pillar-csi/pillar/storage"
)

// sizeMax bounds what is asked of ZFS in bytes, so that rounding up stays an int64.
const sizeMax = 1 << 62

// unfinished is where Create makes a volume: a name no volume has. zfs create makes the
// zvol and its properties in two transactions (zfs_ioc_create in module/zfs/zfs_ioctl.c),
// between which a power cut leaves a zvol that looks whole and reserves nothing. The rename
// that follows is one transaction. The name tells whose it is, for the mark may be missing.
func (c Config) unfinished(name string, owner storage.Owner) string {
	return fmt.Sprintf("%s/unfinished %x", c.parent(), sha256.Sum256([]byte(name+"/"+string(owner))))[:len(c.parent())+len("/unfinished ")+16]
}

// Create implements storage.Backend. It does not wait for the device: Activate does (B-214).
func (p *Pool) Create(ctx context.Context, s storage.Spec) (storage.Volume, error) {
	v, err := p.create(ctx, s)
	if err != nil {
		return storage.Volume{}, fmt.Errorf("create zvol %s: %w", p.cfg.dataset(s.ID.Name), err)
	}
	return v, nil
}

func (p *Pool) create(ctx context.Context, s storage.Spec) (storage.Volume, error) {
	if err := p.check(s); err != nil {
		return storage.Volume{}, err
	}
	dataset, unfinished := p.cfg.dataset(s.ID.Name), p.cfg.unfinished(s.ID.Name, s.Owner)
	found, err := p.list(ctx, dataset, unfinished)
	if err != nil {
		return storage.Volume{}, err
	}
	if left, ok := found[unfinished]; ok {
		if err := p.destroy(ctx, left); err != nil {
			return storage.Volume{}, fmt.Errorf("remove what an earlier create left: %w", err)
		}
	}
	zvol, ok := found[dataset]
	if !ok {
		if err := fits(s, found[p.cfg.parent()].available); err != nil {
			return storage.Volume{}, err
		}
		if zvol, err = p.make(ctx, s); err != nil {
			return storage.Volume{}, err
		}
	}
	if err := p.equal(ctx, zvol, s); err != nil {
		return storage.Volume{}, err
	}
	return p.volume(s.ID.Name, zvol), p.mode(ctx, zvol, s.ZFS.Properties["volmode"])
}

// fits refuses what cannot have room. What the reservation adds to the size only zfs knows.
func fits(s storage.Spec, available int64) error {
	switch {
	case s.Bytes > sizeMax:
		return fmt.Errorf("%w: no pool holds %d bytes", storage.ErrNoSpace, s.Bytes)
	case !sparse(s.ZFS.Properties) && s.Bytes > available:
		return fmt.Errorf("%w: %d bytes needed, %d available", storage.ErrNoSpace, s.Bytes, available)
	}
	return nil
}

// atCreate are the properties that zfs sets at create only (zfsprops(7)).
var atCreate = []string{"encryption", "keyformat", "pbkdf2iters", "volblocksize"}

// make makes the zvol and answers it as it then is. zfs create gets nothing that may fail:
// while somebody has the new device open, as udev does, it takes a failure back by trying to
// destroy the zvol again and again without a pause, in the kernel (zfs_ioc_create in
// module/zfs/zfs_ioctl.c).
func (p *Pool) make(ctx context.Context, s storage.Spec) (report, error) {
	dataset, unfinished := p.cfg.dataset(s.ID.Name), p.cfg.unfinished(s.ID.Name, s.Owner)
	create, set := assign(s)
	argv := slices.Concat([]string{"create", "-s", "-V", fmt.Sprint(s.Bytes)}, create, []string{unfinished})
	if _, err := p.tool(ctx, "zfs", argv...); err != nil {
		return report{}, err
	}
	if _, err := p.tool(ctx, "zfs", slices.Concat([]string{"set"}, set, []string{unfinished})...); err != nil {
		return report{}, errors.Join(err, p.destroyNow(ctx, unfinished))
	}
	if _, err := p.tool(ctx, "zfs", "rename", unfinished, dataset); err != nil {
		return report{}, err
	}
	found, err := p.list(ctx, dataset)
	if err != nil {
		return report{}, err
	}
	zvol, ok := found[dataset]
	if !ok {
		return report{}, fmt.Errorf("zfs does not show the zvol it made: %w", errAbsent)
	}
	if zvol.size < s.Bytes {
		return report{}, fmt.Errorf("zfs made %d bytes, asked for %d", zvol.size, s.Bytes)
	}
	return zvol, nil
}

// assign sorts a request's properties into options of zfs create and assignments of zfs set,
// with the mark and the reservation. volmode is in neither: see mode.
func assign(s storage.Spec) (create, set []string) {
	set = []string{mark + "=" + string(s.Owner)}
	for _, key := range slices.Sorted(maps.Keys(s.ZFS.Properties)) {
		switch assignment := key + "=" + s.ZFS.Properties[key]; {
		case slices.Contains(atCreate, key):
			create = append(create, "-o", assignment)
		case key != "volmode":
			set = append(set, assignment)
		}
	}
	if !sparse(s.ZFS.Properties) {
		set = append(set, "refreservation=auto")
	}
	return create, set
}

// mode sets the volmode that was asked for. That has the kernel make the device anew, by
// name and from a queue (zvol_set_volmode_impl in module/zfs/zvol.c): before the rename the
// name would be gone by then, and the zvol without a device for good. A create that died
// before this is repeated before anybody is handed the device, and Activate hands out none of
// another mode.
func (p *Pool) mode(ctx context.Context, zvol report, want string) error {
	if want == "geom" {
		want = "full" // zfs shows one as the other
	}
	if want == "" || want == zvol.mode {
		return nil
	}
	_, err := p.tool(ctx, "zfs", "set", "volmode="+want, zvol.name)
	return err
}

// equal holds what is there to a request: its owner's zvol, of that size rounded up to its
// own volblocksize (B-212). Its properties may differ, they can be changed.
func (p *Pool) equal(ctx context.Context, zvol report, s storage.Spec) error {
	if err := zvol.check(s.Owner); err != nil {
		return err
	}
	size, err := roundUp(s.Bytes, zvol.block)
	if err == nil && size != zvol.size {
		err = fmt.Errorf("%w: with %d bytes, asked for %d", storage.ErrConflict, zvol.size, size)
	}
	if err != nil {
		return err
	}
	return p.reserve(ctx, zvol)
}

// find answers one zvol or what else has its name. storage.ErrNotFound: zfs says twice that
// it is absent, with its parent there both times, so no import or export came in between.
func (p *Pool) find(ctx context.Context, name string) (report, error) {
	if err := p.cfg.CheckName(name); err != nil {
		return report{}, err
	}
	dataset := p.cfg.dataset(name)
	for range 2 {
		found, err := p.list(ctx, dataset)
		if err != nil {
			return report{}, err
		}
		if zvol, ok := found[dataset]; ok {
			return zvol, nil
		}
	}
	return report{}, storage.ErrNotFound
}

// usable finds an owner's zvol.
func (p *Pool) usable(ctx context.Context, name string, owner storage.Owner) (report, error) {
	zvol, err := p.find(ctx, name)
	if err != nil {
		return report{}, err
	}
	return zvol, zvol.check(owner)
}

// check holds what has a volume's name to being its owner's zvol. One with another mark is a
// copy, was renamed, or is of another lifecycle: it is another volume's data.
func (r report) check(owner storage.Owner) error {
	switch {
	case r.volume() && owner.Owns(r.mark):
		return nil
	case !r.volume():
		return fmt.Errorf("%w: %s is a %s", storage.ErrForeign, r.name, r.kind)
	default:
		return fmt.Errorf("%w: its property %s is %q; if it is: zfs set %s=%s %s", storage.ErrForeign, mark, r.mark, mark, owner, r.name)
	}
}

// Inspect implements storage.Backend. A dataset of any kind occupies the name.
func (p *Pool) Inspect(ctx context.Context, name string) (storage.Volume, error) {
	zvol, err := p.find(ctx, name)
	if err != nil {
		return storage.Volume{}, fmt.Errorf("inspect zvol %s: %w", p.cfg.dataset(name), err)
	}
	return p.volume(name, zvol), nil
}

// Delete implements storage.Backend. Snapshots and clones make it storage.ErrPrecondition.
func (p *Pool) Delete(ctx context.Context, name string, owner storage.Owner) error {
	if err := p.remove(ctx, name, owner); err != nil {
		return fmt.Errorf("delete zvol %s: %w", p.cfg.dataset(name), err)
	}
	return nil
}

// remove looks twice: the second time proves what the first did, or that the zvol was absent
// and its pool was not.
func (p *Pool) remove(ctx context.Context, name string, owner storage.Owner) error {
	if err := p.cfg.CheckName(name); err != nil {
		return err
	}
	for look := range 2 {
		dataset, unfinished := p.cfg.dataset(name), p.cfg.unfinished(name, owner)
		found, err := p.list(ctx, dataset, unfinished)
		if err != nil {
			return err
		}
		zvol, ok := found[dataset]
		if ok {
			err = zvol.check(owner)
		}
		for _, d := range []string{unfinished, dataset} {
			if zvol, ok := found[d]; ok && err == nil {
				err = p.destroy(ctx, zvol)
			}
		}
		if err != nil && (look > 0 || !errors.Is(err, errAbsent)) {
			return err
		}
	}
	return p.nodes.forget(p.cfg.dataset(name))
}

// busyWait is how long a destroy is tried again: udev and blkid look into each new or
// changed device for some milliseconds, and so do we (H-40).
const (
	busyWait = 5 * time.Second
	busyPoll = 200 * time.Millisecond
)

// destroy destroys one zvol, and nothing with it, when its device has come.
func (p *Pool) destroy(ctx context.Context, zvol report) error {
	p.nodes.appear(ctx, zvol)
	return p.destroyNow(ctx, zvol.name)
}

func (p *Pool) destroyNow(ctx context.Context, dataset string) error {
	for end := time.Now().Add(busyWait); ; {
		_, err := p.tool(ctx, "zfs", "destroy", dataset)
		if !errors.Is(err, storage.ErrBusy) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w", p.nodes.held(ctx, dataset), err)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(busyPoll):
		}
	}
}

// List implements storage.Backend: the zvols directly below the parent dataset.
func (p *Pool) List(ctx context.Context) ([]storage.Volume, error) {
	list, err := p.zvols(ctx)
	if err != nil {
		return nil, fmt.Errorf("list zvols of %s: %w", p.cfg.parent(), err)
	}
	var volumes []storage.Volume
	for _, zvol := range list {
		if name := path.Base(zvol.name); zvol.volume() && p.cfg.CheckName(name) == nil {
			volumes = append(volumes, p.volume(name, zvol))
		}
	}
	return volumes, nil
}

func (p *Pool) volume(name string, zvol report) storage.Volume {
	return storage.Volume{
		ID:         storage.VolumeID{Pool: p.cfg.Pool, Name: name},
		Owner:      zvol.mark,
		Bytes:      zvol.size,
		DevicePath: "/dev/zvol/" + p.cfg.dataset(name),
	}
}

// roundUp answers the next multiple of a zvol's volblocksize (P-4).
func roundUp(bytes, block int64) (int64, error) {
	if bytes > sizeMax {
		return 0, fmt.Errorf("%w: no pool holds %d bytes", storage.ErrNoSpace, bytes)
	}
	return (bytes + block - 1) / block * block, nil
}
