package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
)

// CreateVolume makes the backend, or answers the equal one this lifecycle made before. What
// it did not make is refused, and the mark remembers it (block.md B-217).
func (s *server) CreateVolume(ctx context.Context, req *agentpb.CreateVolumeRequest) (*agentpb.CreateVolumeResponse, error) {
	spec, err := agentrpc.Spec(req)
	if err != nil {
		return nil, err
	}
	p, err := s.volumes.poolOf(spec.Backend, spec.ID)
	if err != nil {
		return nil, err
	}
	if err := p.fit(&spec); err != nil {
		return nil, err
	}
	tok := agentrpc.Token(req.Token)
	spec.Owner = storage.Owner(tok.UID)
	op := fencing.Op{Class: fencing.Grant, Create: true, Taken: func(ctx context.Context) (bool, error) {
		return p.taken(ctx, spec.ID.Name, spec.Owner)
	}}
	var vol storage.Volume
	err = s.fence.Do(ctx, spec.ID.String(), tok, op, func(ctx context.Context) (err error) {
		vol, err = p.Create(ctx, spec)
		return foreign(err)
	})
	if err != nil {
		return nil, err
	}
	return &agentpb.CreateVolumeResponse{SizeBytes: vol.Bytes, DevicePath: vol.DevicePath}, nil
}

// taken: only the tool's own word makes a name free, and only the owner's mark makes what
// has it this lifecycle's: then the fencing marks were lost, not the volume (B-160).
func (p *pool) taken(ctx context.Context, name string, owner storage.Owner) (bool, error) {
	vol, err := p.Inspect(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil && !owner.Owns(vol.Owner), err
}

// foreign says in the fence's words that a backend is not this lifecycle's.
func foreign(err error) error {
	if errors.Is(err, storage.ErrForeign) {
		return fmt.Errorf("%w: %w", fencing.ErrForeign, err)
	}
	return err
}
