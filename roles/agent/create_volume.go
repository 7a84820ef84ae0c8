package agent

import (
	"context"
	"errors"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
)

// CreateVolume makes the backend, or answers the equal one this lifecycle made before. A
// backend that was there first is refused, and the mark remembers it (block.md B-217).
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
	op := fencing.Op{Class: fencing.Grant, Create: true, Probe: func(ctx context.Context) (bool, error) {
		return p.exists(ctx, spec.ID.Name)
	}}
	var vol storage.Volume
	err = s.fence.Do(ctx, spec.ID.String(), agentrpc.Token(req.Token), op, func(ctx context.Context) (err error) {
		vol, err = p.Create(ctx, spec)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &agentpb.CreateVolumeResponse{SizeBytes: vol.Bytes, DevicePath: vol.DevicePath}, nil
}

// exists: only the tool's own word makes it false.
func (p *pool) exists(ctx context.Context, name string) (bool, error) {
	_, err := p.Inspect(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
