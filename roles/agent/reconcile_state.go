package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

// ReconcileState brings exports to their desired state, each under its own token. The
// complete request restores them all and opens the gate. What failed is said per item.
func (s *server) ReconcileState(ctx context.Context, req *agentpb.ReconcileStateRequest) (*agentpb.ReconcileStateResponse, error) {
	var items []agentrpc.Item
	resp := &agentpb.ReconcileStateResponse{}
	for _, r := range req.GetItems() {
		it, err := item(r.GetToken(), r.GetVolumeId(), r.GetExport())
		if err != nil {
			resp.Results = append(resp.Results, agentrpc.Result(r.GetVolumeId(), err))
			continue
		}
		it.Ready = r.GetReady()
		items = append(items, it)
	}
	run := s.gate.Resync
	if req.GetComplete() {
		run = s.restore
	}
	results, err := run(ctx, items)
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		resp.Results = append(resp.Results, agentrpc.Result(r.Volume, r.Err))
	}
	return resp, nil
}

func (s *server) restore(ctx context.Context, items []agentrpc.Item) ([]agentrpc.ItemResult, error) {
	changed(ctx)
	if err := s.configfs(); err != nil {
		return nil, err
	}
	return s.gate.Restore(ctx, items)
}
