package agent

import (
	"context"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agent/exports"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// DenyInitiator takes one initiator's admission away; a missing one, or a missing export,
// is success. It is not gated.
func (s *server) DenyInitiator(ctx context.Context, req *agentpb.DenyInitiatorRequest) (*agentpb.DenyInitiatorResponse, error) {
	id, err := storage.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	kind := transport.Kind(req.GetProtocol())
	t, err := s.toRevoke(kind)
	if err != nil {
		return nil, err
	}
	if err := exports.CheckInitiator(kind, req.GetInitiatorId()); err != nil {
		return nil, err
	}
	p, err := s.volumes.poolToRemove(storage.BackendType(req.GetBackend()), id)
	if err != nil {
		return nil, err
	}
	tok, op := agentrpc.Token(req.Token), fencing.Op{Class: fencing.Revoke}
	err = s.fence.Do(ctx, id.String(), tok, op, func(ctx context.Context) error {
		hold := s.volumes.hold(ctx, p, id.Name, storage.Owner(tok.UID))
		return t.Deny(ctx, id.String(), p.device(id.Name), req.GetInitiatorId(), hold)
	})
	if err != nil {
		return nil, err
	}
	return &agentpb.DenyInitiatorResponse{}, nil
}
