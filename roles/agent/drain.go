package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
)

// Drain ends service: every other call is ErrUnavailable from now on. It answers when the
// calls in flight have finished. The kernel's exports are not touched.
func (s *server) Drain(ctx context.Context, _ *agentpb.DrainRequest) (*agentpb.DrainResponse, error) {
	again, err := s.drain(ctx)
	if err != nil {
		return nil, err
	}
	if again {
		return &agentpb.DrainResponse{Message: "was already drained"}, nil
	}
	changed(ctx)
	return &agentpb.DrainResponse{Message: "drained"}, nil
}

func (s *server) drain(ctx context.Context) (again bool, err error) {
	if again, err = s.calls.drain(ctx); again || err != nil {
		return again, err
	}
	return false, s.state.flushed()
}
