package agent

import (
	"context"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// UnexportVolume removes the volume's export; a missing one is success. It is not gated.
func (s *server) UnexportVolume(ctx context.Context, req *agentpb.UnexportVolumeRequest) (*agentpb.UnexportVolumeResponse, error) {
	id, err := storage.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	t, err := s.toRevoke(transport.Kind(req.GetProtocol()))
	if err != nil {
		return nil, err
	}
	p, err := s.volumes.poolToRemove(storage.BackendType(req.GetBackend()), id)
	if err != nil {
		return nil, err
	}
	op := fencing.Op{Class: fencing.Revoke}
	err = s.fence.Do(ctx, id.String(), agentrpc.Token(req.Token), op, func(ctx context.Context) error {
		return t.Unexport(ctx, id.String(), p.device(id.Name))
	})
	if err != nil {
		return nil, err
	}
	return &agentpb.UnexportVolumeResponse{}, nil
}
