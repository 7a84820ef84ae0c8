package agent

import (
	"context"
	"slices"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

// GetCapabilities answers what works now: a pool that cannot be read is left out (health
// says why), and a protocol the kernel does not offer.
func (s *server) GetCapabilities(ctx context.Context, _ *agentpb.GetCapabilitiesRequest) (*agentpb.GetCapabilitiesResponse, error) {
	found := make([]*agentpb.DiscoveredPool, len(s.volumes.pools))
	s.volumes.survey(ctx, func(ctx context.Context, i int, p *pool) {
		if have, err := p.Pool(ctx); err == nil {
			found[i] = agentrpc.Pool(have)
		}
	})
	resp := &agentpb.GetCapabilitiesResponse{}
	for i, p := range s.volumes.pools {
		if found[i] == nil {
			continue
		}
		resp.Pools = append(resp.Pools, found[i])
		if !slices.Contains(resp.Backends, string(p.backend)) {
			resp.Backends = append(resp.Backends, string(p.backend))
		}
	}
	for kind, t := range s.targets {
		if t.Available(ctx) == nil {
			resp.Protocols = append(resp.Protocols, string(kind))
		}
	}
	slices.Sort(resp.Protocols)
	return resp, nil
}
