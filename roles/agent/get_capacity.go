package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
)

// GetCapacity answers a pool's bytes. ErrNotFound: neither the configuration nor the tool
// knows it.
func (s *server) GetCapacity(ctx context.Context, req *agentpb.GetCapacityRequest) (*agentpb.GetCapacityResponse, error) {
	p, err := s.volumes.find(storage.BackendType(req.GetBackend()), req.GetPool())
	if err != nil {
		return nil, err
	}
	found, err := p.Pool(ctx)
	if err != nil {
		return nil, err
	}
	return &agentpb.GetCapacityResponse{TotalBytes: found.Capacity.Total, AvailableBytes: found.Capacity.Available}, nil
}
