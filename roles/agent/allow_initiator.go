package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// AllowInitiator admits one initiator to the volume's export; a missing export is
// ErrNotFound. With acl off nothing is written but the fencing mark.
func (s *server) AllowInitiator(ctx context.Context, req *agentpb.AllowInitiatorRequest) (*agentpb.AllowInitiatorResponse, error) {
	it := agentrpc.Item{
		Token: agentrpc.Token(req.GetToken()), Backend: storage.BackendType(req.GetBackend()),
		Export: transport.Export{Kind: transport.Kind(req.GetProtocol()), Volume: req.GetVolumeId(), ACL: req.GetAclEnabled()},
	}
	if err := s.gate.Allow(ctx, it, req.GetInitiatorId()); err != nil {
		return nil, err
	}
	return &agentpb.AllowInitiatorResponse{}, nil
}
