package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

// ListExports answers the pillar exports the kernel has, whatever anybody remembers.
func (s *server) ListExports(ctx context.Context, _ *agentpb.ListExportsRequest) (*agentpb.ListExportsResponse, error) {
	list, err := s.kernelExports(ctx)
	if err != nil {
		return nil, err
	}
	resp := &agentpb.ListExportsResponse{}
	for _, e := range list {
		resp.Exports = append(resp.Exports, agentrpc.ExportInfo(e))
	}
	return resp, nil
}
