package agent

import (
	"context"
	"time"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/telemetry"
)

// poolWait bounds the look at all pools: one that hangs is unhealthy, not the answer late.
const poolWait = 10 * time.Second

// HealthCheck says how the agent and what it stands on are. A degraded agent serves.
func (s *server) HealthCheck(ctx context.Context, _ *agentpb.HealthCheckRequest) (*agentpb.HealthCheckResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, poolWait)
	defer cancel()
	resp := &agentpb.HealthCheckResponse{Version: telemetry.Version, Serving: true}
	for _, t := range s.targets {
		resp.Subsystems = append(resp.Subsystems, subsystem(t.Subsystem(), "", t.Available(ctx)))
	}
	for _, p := range s.volumes.pools {
		resp.Subsystems = append(resp.Subsystems, subsystem("pool", p.name, p.health(ctx)))
	}
	resp.ExportsGated = s.gate.Check() != nil
	return resp, nil
}

// health is nil for a pool that can be read and has nothing to complain about. Backends that
// know more than whether a pool is there have a Health of their own.
func (p *pool) health(ctx context.Context) error {
	if b, ok := p.Backend.(interface{ Health(context.Context) error }); ok {
		return b.Health(ctx)
	}
	_, err := p.Pool(ctx)
	return err
}

func subsystem(name, pool string, err error) *agentpb.SubsystemHealth {
	h := &agentpb.SubsystemHealth{Name: name, Pool: pool, Healthy: err == nil}
	if err != nil {
		h.Message = err.Error()
	}
	return h
}
