package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
)

// Drain ends service: every other call is ErrUnavailable from now on. The first one answers
// when the calls in flight have finished. The kernel's exports are not touched.
func (s *server) Drain(ctx context.Context, _ *agentpb.DrainRequest) (*agentpb.DrainResponse, error) {
	if s.calls.drain() {
		return &agentpb.DrainResponse{Message: "was already drained"}, nil
	}
	if err := s.flush(ctx); err != nil {
		return nil, err
	}
	changed(ctx)
	return &agentpb.DrainResponse{Message: "drained"}, nil
}

// flush waits for the calls in flight of a drained agent, and leaves the marker.
func (s *server) flush(ctx context.Context) error {
	if err := s.calls.wait(ctx); err != nil {
		return err
	}
	return s.state.flushed()
}
