package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pillar-csi/pillar/storage"
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

// Device activates the owner's volume and answers its device, recomputed from the layout (B-236),
// once that is a block device that opens. A device that does not appear until the given
// time, or before the call's deadline, is ErrPrecondition (B-237).
func (v *volumes) Device(ctx context.Context, backend storage.BackendType, id storage.VolumeID, owner storage.Owner, until time.Time) (string, error) {
	p, err := v.poolOf(backend, id)
	if err != nil {
		return "", err
	}
	vol, err := p.activate(ctx, id.Name, owner, until)
	if errors.Is(err, storage.ErrNotFound) {
		return "", fmt.Errorf("%w: device of %s is missing: %w", storage.ErrPrecondition, id, err)
	}
	if err != nil {
		return "", err
	}
	if err := v.await(ctx, vol.DevicePath, until); err != nil {
		return "", err
	}
	return vol.DevicePath, nil
}

// activate asks again while the backend says that the device may yet come.
func (p *pool) activate(ctx context.Context, name string, owner storage.Owner, until time.Time) (storage.Volume, error) {
	for {
		vol, err := p.Activate(ctx, name, owner)
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(until) {
			return vol, err
		}
		select {
		case <-ctx.Done():
			return storage.Volume{}, err
		case <-time.After(devicePoll):
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
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: device %s is missing: %w", storage.ErrPrecondition, path, err)
		case <-time.After(devicePoll):
		}
	}
}
