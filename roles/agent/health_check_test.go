package agent

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/pillar-csi/pillar/roles/agent/exports"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
)

// hung is a backend whose tools do not answer.
type hung struct{ storage.Backend }

func (hung) Pool(ctx context.Context) (storage.Pool, error) {
	<-ctx.Done()
	return storage.Pool{}, ctx.Err()
}

// A pool that hangs makes the agent degraded, not unreachable (B-283).
func TestAgent_HealthOfAHungPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{
			volumes: &volumes{pools: []pool{{name: "vg0", Backend: hung{}}, {name: "vg1", Backend: hung{}}}},
			gate:    exports.NewGate(nil, nil, nil, nil, nil),
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*poolWait)
		defer cancel()
		got, err := s.HealthCheck(ctx, &agentpb.HealthCheckRequest{})
		if err != nil || ctx.Err() != nil || len(got.GetSubsystems()) != 2 || got.Subsystems[0].Healthy {
			t.Errorf("HealthCheck = %v, %v (%v), want two unhealthy pools in time", got, err, ctx.Err())
		}
	})
}
