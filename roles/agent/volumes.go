package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pillar-csi/pillar/roles/agent/exports"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// volumes routes to the configured pools (block.md B-201).
type volumes struct {
	pools   []pool
	devices devices
}

// pool is one configured pool and what its layout is.
type pool struct {
	name     string
	backend  storage.BackendType
	parent   string                     // ZFS: parent dataset below the pool
	thinPool string                     // LVM
	mode     string                     // LVM: for requests naming none
	check    func(volume string) error  // storage.ErrInvalid: no backend of this type has such a name
	device   func(volume string) string // the path its device has, or would have
	storage.Backend
}

// offered: the backend types this version serves at all.
var offered = []storage.BackendType{storage.LVMLV, storage.ZFSZvol}

// find answers the pool of that type and name. A backend this agent does not
// offer is ErrUnsupported, a pool that is not configured ErrNotFound.
func (v *volumes) find(backend storage.BackendType, name string) (*pool, error) {
	known := false
	for i, p := range v.pools {
		if p.name == name && p.backend == backend {
			return &v.pools[i], nil
		}
		known = known || p.backend == backend
	}
	for _, b := range offered {
		known = known || b == backend
	}
	switch {
	case backend == "":
		return nil, fmt.Errorf("%w: no backend type", storage.ErrInvalid)
	case !known:
		return nil, fmt.Errorf("%w: backend %q", storage.ErrUnsupported, backend)
	}
	return nil, fmt.Errorf("pool %s is not in the agent's configuration: %w", name, storage.ErrNotFound)
}

// poolOf answers the pool of a volume whose name it checked.
func (v *volumes) poolOf(backend storage.BackendType, id storage.VolumeID) (*pool, error) {
	p, err := v.find(backend, id.Pool)
	if err != nil {
		return nil, err
	}
	return p, p.check(id.Name)
}

// poolToRemove is poolOf for a call that takes something away: a pool that is not
// configured proves nothing about the volume, so it must not read as "gone" (B-203).
func (v *volumes) poolToRemove(backend storage.BackendType, id storage.VolumeID) (*pool, error) {
	p, err := v.poolOf(backend, id)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("%w: pool %s is not in the agent's configuration", storage.ErrPrecondition, id.Pool)
	}
	return p, err
}

// fit fills in the entry's mode and refuses another layout than the entry's (B-202).
func (p *pool) fit(s *storage.Spec) error {
	if s.ZFS != nil && s.ZFS.ParentDataset != p.parent {
		return fmt.Errorf("%w: request names parent dataset %q, this agent has %q for %s", storage.ErrPrecondition, s.ZFS.ParentDataset, p.parent, p.name)
	}
	if s.LVM == nil {
		return nil
	}
	if s.LVM.Mode == "" {
		s.LVM.Mode = p.mode
	}
	switch {
	case s.LVM.Mode != "linear" && s.LVM.Mode != "thin":
		return fmt.Errorf("%w: LVM mode %q, want linear or thin", storage.ErrInvalid, s.LVM.Mode)
	case s.LVM.Mode == "linear" && s.LVM.ThinPool == "": // places nothing in the pool
		return nil
	case s.LVM.ThinPool != p.thinPool:
		return fmt.Errorf("%w: request names thin pool %q, this agent has %q for %s", storage.ErrPrecondition, s.LVM.ThinPool, p.thinPool, p.name)
	case s.LVM.Mode == "thin" && p.thinPool == "":
		return fmt.Errorf("%w: %s has no thin pool", storage.ErrPrecondition, p.name)
	}
	return nil
}

// Path answers the path a volume's device has, or would have: the layout's alone (B-236).
func (v *volumes) Path(backend storage.BackendType, id storage.VolumeID) (string, error) {
	p, err := v.poolOf(backend, id)
	if err != nil {
		return "", err
	}
	return p.device(id.Name), nil
}

// hold claims the device of the owner's volume, which it looks at only then: most revokes do
// not need it. What the path leads to by now may be another volume's (B-224).
func (v *volumes) hold(ctx context.Context, p *pool, name string, owner storage.Owner) transport.Hold {
	return func(path string) (release func() error, err error) {
		vol, err := p.Activate(ctx, name, owner)
		if err := p.absent(name, err); err != nil {
			return nil, err
		}
		return v.devices.Hold(path, vol.Device)
	}
}

// device activates the owner's volume and answers its device, recomputed from the layout (B-236),
// once that is a block device that opens. A device that does not appear until the given
// time, or before the call's deadline, is ErrPrecondition (B-237).
func (v *volumes) device(ctx context.Context, backend storage.BackendType, id storage.VolumeID, owner storage.Owner, until time.Time) exports.Device {
	p, err := v.poolOf(backend, id)
	if err != nil {
		return exports.Device{Err: err}
	}
	vol, err := p.activate(ctx, id.Name, owner, until)
	if err := p.absent(id.Name, err); err != nil {
		return exports.Device{Err: err}
	}
	return exports.Device{Path: vol.DevicePath, ID: vol.Device, Err: v.await(ctx, vol.DevicePath, until)}
}

// Devices implements exports.Volumes: device for many volumes of one pool.
func (v *volumes) Devices(ctx context.Context, backend storage.BackendType, name string, owners map[string]storage.Owner, until time.Time) map[string]exports.Device {
	found := map[string]exports.Device{}
	p, err := v.find(backend, name)
	for volume, owner := range owners {
		switch {
		case err != nil:
			found[volume] = exports.Device{Err: err}
		case len(owners) == 1: // it is looked at alone, not with all of the pool
			found[volume] = v.device(ctx, backend, storage.VolumeID{Pool: name, Name: volume}, owner, until)
		}
	}
	if len(found) > 0 {
		return found
	}
	for missing := owners; len(missing) > 0; {
		missing = p.activateAll(ctx, missing, found)
		if len(missing) > 0 && !pause(ctx, until) {
			break
		}
	}
	return found
}

// activateAll notes what became of the owners' volumes and answers those whose device is
// missing and may yet come.
func (p *pool) activateAll(ctx context.Context, owners map[string]storage.Owner, found map[string]exports.Device) (missing map[string]storage.Owner) {
	missing = map[string]storage.Owner{}
	for name, r := range p.ActivateAll(ctx, owners) {
		if errors.Is(r.Err, fs.ErrNotExist) {
			missing[name] = owners[name]
		}
		found[name] = exports.Device{Path: p.device(name), ID: r.Device, Err: p.absent(name, r.Err)}
	}
	return missing
}

// absent is ErrPrecondition for a device that is missing (B-237), and nothing else: NotFound
// is of a grant without an export. Other errors stay.
func (p *pool) absent(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w: device %s is missing: %v", storage.ErrPrecondition, p.device(name), err)
	}
	return err
}

// pause waits until it is worth looking for a device again; false: there is no time left.
func pause(ctx context.Context, until time.Time) bool {
	if time.Now().After(until) {
		return false
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(devicePoll):
		return true
	}
}

// activate asks again while the backend says that the device may yet come.
func (p *pool) activate(ctx context.Context, name string, owner storage.Owner, until time.Time) (storage.Volume, error) {
	for {
		vol, err := p.Activate(ctx, name, owner)
		if !errors.Is(err, fs.ErrNotExist) || !pause(ctx, until) {
			return vol, err
		}
	}
}

// devicePoll: a node made by the LVM tools is there when they return; one made by a udev
// daemon follows within milliseconds.
const devicePoll = 100 * time.Millisecond

func (v *volumes) await(ctx context.Context, path string, until time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		err := v.devices.Ready(path)
		if err == nil || !errors.Is(err, errNoDevice) {
			return err
		}
		if !pause(ctx, until) {
			return fmt.Errorf("%w: device %s is missing: %w", storage.ErrPrecondition, path, err)
		}
	}
}
