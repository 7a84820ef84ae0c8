package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
)

// ExportVolume makes the volume reachable, or answers the equal export that is there.
func (s *server) ExportVolume(ctx context.Context, req *agentpb.ExportVolumeRequest) (*agentpb.ExportVolumeResponse, error) {
	it, err := item(req.GetToken(), req.GetVolumeId(), req.GetExport())
	if err != nil {
		return nil, err
	}
	got, err := s.gate.Export(ctx, it)
	if err != nil {
		return nil, err
	}
	return &agentpb.ExportVolumeResponse{Export: agentrpc.ExportInfo(got)}, nil
}

// item reads one desired export.
func item(tok *agentpb.FenceToken, volume string, spec *agentpb.ExportSpec) (agentrpc.Item, error) {
	e, err := agentrpc.Export(volume, spec)
	return agentrpc.Item{Token: agentrpc.Token(tok), Backend: storage.BackendType(spec.GetBackend()), Export: e}, err
}
