package agent

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/pillar-csi/pillar/roles/agent/exports"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/storagetest"
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
			log:     zap.NewNop(),
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

// refused is a pool whose tool fails.
type refused struct{ storage.Backend }

func (refused) Health(context.Context) error {
	return fmt.Errorf("look at vg0: %w", &host.ExitError{Argv: []string{"vgs", "--config", "devices{}", "vg0"}, Code: 5, Stderr: "no such group"})
}

// The answer, which becomes a condition, has the tool's words; the log also how it was called.
func TestAgent_HealthOfARefusedPool(t *testing.T) {
	core, logs := observer.New(zap.DebugLevel)
	s := &server{
		log:     zap.New(core),
		volumes: &volumes{pools: []pool{{name: "vg0", Backend: refused{}}}},
		gate:    exports.NewGate(nil, nil, nil, nil, nil),
	}
	got, err := s.HealthCheck(t.Context(), &agentpb.HealthCheckRequest{})
	want := "look at vg0: vgs: exit status 5: no such group"
	if err != nil || len(got.GetSubsystems()) != 1 || got.Subsystems[0].Message != want {
		t.Errorf("HealthCheck = %v, %v, want %q", got, err, want)
	}
	if logs.FilterField(zap.String("command", "vgs --config devices{} vg0")).Len() != 1 {
		t.Errorf("logged %v, want the command", logs.All())
	}
}

// degraded is a backend that is there and not well.
type degraded struct{ storage.Backend }

func (degraded) Health(context.Context) error { return errors.New("pool tank is DEGRADED") }

// B-283: a backend's own word counts, also of a pool that can be read.
func TestPool_health(t *testing.T) {
	mem := storagetest.NewMemory("tank", storagetest.Unit)
	for want, backend := range map[string]storage.Backend{"<nil>": mem, "pool tank is DEGRADED": degraded{mem}} {
		if got := fmt.Sprint((&pool{name: "tank", Backend: backend}).health(t.Context())); got != want {
			t.Errorf("health = %s, want %s", got, want)
		}
	}
}
