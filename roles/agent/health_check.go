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
		_, err := p.Pool(ctx)
		resp.Subsystems = append(resp.Subsystems, subsystem("pool", p.name, err))
	}
	resp.ExportsGated = s.gate.Check() != nil
	return resp, nil
}

func subsystem(name, pool string, err error) *agentpb.SubsystemHealth {
	h := &agentpb.SubsystemHealth{Name: name, Pool: pool, Healthy: err == nil}
	if err != nil {
		h.Message = err.Error()
	}
	return h
}
