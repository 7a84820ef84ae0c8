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

// sizeMax bounds what is asked of ZFS in bytes. From 8 EiB on, which rounding can reach,
// zfs create of OpenZFS 2.3 spins in the kernel for ever.
const sizeMax = 1 << 62

// unfinished is where Create makes a volume: a name no volume has. zfs create makes the
// zvol and its properties in two transactions (zfs_ioc_create in module/zfs/zfs_ioctl.c),
// between which a power cut leaves a zvol that looks whole and reserves nothing. The rename
// that follows is one transaction.
func (p *Pool) unfinished(name string) string {
	return fmt.Sprintf("%s/unfinished %x", p.parent(), sha256.Sum256([]byte(name)))[:len(p.parent())+len("/unfinished ")+16]
}

// Create implements storage.Backend. It does not wait for the device: Activate does (B-214).
func (p *Pool) Create(ctx context.Context, s storage.Spec) (storage.Volume, error) {
	v, err := p.create(ctx, s)
	if err != nil {
		return storage.Volume{}, fmt.Errorf("create zvol %s: %w", p.dataset(s.ID.Name), err)
	}
	return v, nil
}

func (p *Pool) create(ctx context.Context, s storage.Spec) (storage.Volume, error) {
	if err := p.check(s); err != nil {
		return storage.Volume{}, err
	}
	dataset, unfinished := p.dataset(s.ID.Name), p.unfinished(s.ID.Name)
	found, err := p.list(ctx, dataset, unfinished)
	if err != nil {
		return storage.Volume{}, err
	}
	if left, ok := found[unfinished]; ok {
		if err := p.drop(ctx, left, s.ID.Name); err != nil {
			return storage.Volume{}, fmt.Errorf("remove what an earlier create left: %w", err)
		}
	}
	zvol, ok := found[dataset]
	if !ok {
		if err := fits(s, found[p.parent()].available); err != nil {
			return storage.Volume{}, err
		}
		if zvol, err = p.make(ctx, s); err != nil {
			return storage.Volume{}, err
		}
	}
	return p.volume(s.ID.Name, zvol), p.equal(ctx, zvol, s)
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

// make makes the zvol and answers it as it then is.
func (p *Pool) make(ctx context.Context, s storage.Spec) (report, error) {
	dataset, unfinished := p.dataset(s.ID.Name), p.unfinished(s.ID.Name)
	argv := []string{"create", "-V", fmt.Sprint(s.Bytes)}
	for _, key := range slices.Sorted(maps.Keys(s.ZFS.Properties)) {
		argv = append(argv, "-o", key+"="+s.ZFS.Properties[key])
	}
	if _, err := p.tool(ctx, "zfs", append(argv, "-o", mark+"="+s.ID.Name, unfinished)...); err != nil {
		return report{}, err
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

// equal holds what is there to a request: a zvol of ours, of that size rounded up to its own
// volblocksize (B-212). Its properties may differ, they can be changed.
func (p *Pool) equal(ctx context.Context, zvol report, s storage.Spec) error {
	switch {
	case !zvol.volume():
		return fmt.Errorf("%w: as a %s", storage.ErrConflict, zvol.kind)
	case zvol.mark != s.ID.Name:
		return fmt.Errorf("%w: as a zvol that pillar did not make for this volume (property %s is %q)", storage.ErrConflict, mark, zvol.mark)
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
	if err := p.CheckName(name); err != nil {
		return report{}, err
	}
	dataset := p.dataset(name)
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

// usable finds a zvol that may be handed out.
func (p *Pool) usable(ctx context.Context, name string) (report, error) {
	zvol, err := p.find(ctx, name)
	if err != nil {
		return report{}, err
	}
	return zvol, zvol.check(name)
}

// check holds what has a volume's name to being it. A mark with another name is that of a
// copy or of a zvol that was renamed: it is another volume's data. Adopted ones may have none.
func (r report) check(name string) error {
	switch {
	case !r.volume():
		return fmt.Errorf("%w: %s is a %s", storage.ErrPrecondition, r.name, r.kind)
	case r.mark != "" && r.mark != name:
		return fmt.Errorf("%w: %s is marked as volume %s; if that is wrong: zfs inherit %s %s", storage.ErrPrecondition, r.name, r.mark, mark, r.name)
	}
	return nil
}

// Inspect implements storage.Backend. A dataset of any kind occupies the name.
func (p *Pool) Inspect(ctx context.Context, name string) (storage.Volume, error) {
	zvol, err := p.find(ctx, name)
	if err != nil {
		return storage.Volume{}, fmt.Errorf("inspect zvol %s: %w", p.dataset(name), err)
	}
	return p.volume(name, zvol), nil
}

// Activate implements storage.Backend: the zvol's device is there and has a link that leads
// to it. One that does not come at once is storage.ErrPrecondition and an fs.ErrNotExist.
func (p *Pool) Activate(ctx context.Context, name string) (storage.Volume, error) {
	zvol, err := p.usable(ctx, name)
	if err == nil {
		err = p.nodes.settle(ctx, zvol)
	}
	if err != nil {
		return storage.Volume{}, fmt.Errorf("activate zvol %s: %w", p.dataset(name), err)
	}
	return p.volume(name, zvol), nil
}

// Delete implements storage.Backend. Snapshots and clones make it storage.ErrPrecondition.
func (p *Pool) Delete(ctx context.Context, name string) error {
	if err := p.remove(ctx, name); err != nil {
		return fmt.Errorf("delete zvol %s: %w", p.dataset(name), err)
	}
	return nil
}

// remove looks twice: the second time proves what the first did, or that the zvol was absent
// and its pool was not.
func (p *Pool) remove(ctx context.Context, name string) error {
	if err := p.CheckName(name); err != nil {
		return err
	}
	for look := range 2 {
		found, err := p.list(ctx, p.dataset(name), p.unfinished(name))
		if err != nil {
			return err
		}
		for _, dataset := range []string{p.dataset(name), p.unfinished(name)} {
			zvol, ok := found[dataset]
			if !ok {
				continue
			}
			if err := p.drop(ctx, zvol, name); err != nil && (look > 0 || !errors.Is(err, errAbsent)) {
				return err
			}
		}
	}
	return p.nodes.forget(p.dataset(name))
}

// drop destroys what is the volume, or what a Create has left of it.
func (p *Pool) drop(ctx context.Context, zvol report, name string) error {
	if err := zvol.check(name); err != nil {
		return err
	}
	return p.destroy(ctx, zvol.name)
}

// busyWait is how long a destroy is tried again: udev and blkid look into each new or
// changed device for some milliseconds, and so do we (H-40).
const (
	busyWait = 5 * time.Second
	busyPoll = 200 * time.Millisecond
)

// destroy destroys one dataset, and nothing with it.
func (p *Pool) destroy(ctx context.Context, dataset string) error {
	for end := time.Now().Add(busyWait); ; {
		_, err := p.tool(ctx, "zfs", "destroy", dataset)
		if !errors.Is(err, storage.ErrBusy) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s: %w", p.nodes.holders(dataset), err)
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
		return nil, fmt.Errorf("list zvols of %s: %w", p.parent(), err)
	}
	var volumes []storage.Volume
	for _, zvol := range list {
		if name := path.Base(zvol.name); zvol.volume() && p.CheckName(name) == nil {
			volumes = append(volumes, p.volume(name, zvol))
		}
	}
	return volumes, nil
}

func (p *Pool) volume(name string, zvol report) storage.Volume {
	return storage.Volume{
		ID:         storage.VolumeID{Pool: p.cfg.Pool, Name: name},
		Bytes:      zvol.size,
		DevicePath: "/dev/zvol/" + p.dataset(name),
	}
}

// roundUp answers the next multiple of a zvol's volblocksize (P-4).
func roundUp(bytes, block int64) (int64, error) {
	if bytes > sizeMax {
		return 0, fmt.Errorf("%w: no pool holds %d bytes", storage.ErrNoSpace, bytes)
	}
	return (bytes + block - 1) / block * block, nil
}
