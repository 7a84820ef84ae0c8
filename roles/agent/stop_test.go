package agent

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pillar-csi/pillar/roles/agentpb"
)

// B-281, D-19: an agent that is told to stop first says so, to kubelet and to the controller,
// and answers a while longer; then it drains and ends.
func TestServer_stopAnnounces(t *testing.T) {
	s, listener := memoryServer(t), bufconn.Listen(1<<16)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, listener, time.Second) }()
	conn, err := grpc.NewClient("passthrough:agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	probe := healthpb.NewHealthClient(conn)
	watch, err := probe.Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := func(status healthpb.HealthCheckResponse_ServingStatus, serving bool) {
		t.Helper()
		got, err := watch.Recv()
		if err != nil || got.Status != status {
			t.Errorf("gRPC health = %v, %v, want %s", got, err, status)
		}
		own, err := agentpb.NewAgentServiceClient(conn).HealthCheck(t.Context(), &agentpb.HealthCheckRequest{})
		if err != nil || own.Serving != serving {
			t.Errorf("HealthCheck = %v, %v, want serving %v", own, err, serving)
		}
	}
	want(healthpb.HealthCheckResponse_SERVING, true)
	stop()
	want(healthpb.HealthCheckResponse_NOT_SERVING, false)
	if err := <-done; err != nil {
		t.Errorf("serve = %v", err)
	}
	if flushed, err := s.state.takeFlushed(); !flushed || err != nil {
		t.Errorf("marker after the stop: %v, %v, want it there", flushed, err)
	}
}
