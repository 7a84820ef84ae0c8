package agent

import (
	"context"

	"go.uber.org/zap"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/telemetry"
)

// HealthCheck says how the agent and what it stands on are. A degraded agent serves.
func (s *server) HealthCheck(ctx context.Context, _ *agentpb.HealthCheckRequest) (*agentpb.HealthCheckResponse, error) {
	resp := &agentpb.HealthCheckResponse{Version: s.version, Serving: !s.stopping.Load()}
	for _, f := range look(ctx, dryrun.Modules{Root: s.root}, s.volumes, s.targets) {
		if f.err != nil {
			s.log.Debug("unhealthy", append(telemetry.Failure(f.err), zap.String("subsystem", f.subsystem), zap.String("pool", f.pool))...)
		}
		resp.Subsystems = append(resp.Subsystems, &agentpb.SubsystemHealth{
			Name: f.subsystem, Pool: f.pool, Healthy: f.err == nil, Message: f.message(),
		})
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
