package agent

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agent/exports"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/transport"
)

// server answers the RPCs. Those it does not have answer UNIMPLEMENTED.
type server struct {
	agentpb.UnimplementedAgentServiceServer
	log     *zap.Logger
	state   *state
	volumes *volumes
	targets targets
	fence   fence
	gate    *exports.Gate
	calls   *calls
	root    host.Root // where kernel modules are looked for
	version string

	stopping atomic.Bool // told to end; calls are answered a while longer

	// configfs sees to it that configfs is mounted: an unmounted one shows no exports and
	// proves nothing.
	configfs func() error
}

func newServer(log *zap.Logger, st *state, marks *fencing.Store, vols *volumes, offered targets, configfs func() error) *server {
	f := fence{marks}
	return &server{
		log: log, state: st, volumes: vols, targets: offered, fence: f, calls: newCalls(), configfs: configfs, version: telemetry.Version,
		gate: exports.NewGate(f, vols, offered.reachable(), vols.devices.Hold, time.Now),
	}
}

// toRevoke answers the target of a call that takes something away.
func (s *server) toRevoke(kind transport.Kind) (target, error) {
	t, err := s.targets.find(kind)
	if err != nil {
		return nil, err
	}
	return t, s.configfs()
}

// kernelExports answers the pillar exports the kernel has. They go on while configfs is not
// mounted, so that whoever cannot look knows nothing of them.
func (s *server) kernelExports(ctx context.Context) ([]transport.Target, error) {
	if err := s.configfs(); err != nil {
		return nil, err
	}
	return s.targets.list(ctx)
}

// intercept stands around every call of the agent's own service: refused once draining,
// one line in the log, the error's kind on the wire.
func (s *server) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if !strings.HasPrefix(info.FullMethod, "/"+agentpb.AgentService_ServiceDesc.ServiceName+"/") {
		return handler(ctx, req) // gRPC health: says NOT_SERVING by itself
	}
	start := time.Now()
	ctx, c := withCall(ctx)
	resp, err := s.entered(ctx, req, info.FullMethod, handler)
	decision, changed := c.noted()
	telemetry.RPC{
		Method:   info.FullMethod,
		Code:     agentrpc.CodeOf(err).String(),
		Err:      err,
		Duration: time.Since(start),
		Changed:  changed,
		Fields:   append(decisionField(decision), fieldsOf(req)...),
	}.Log(s.log)
	return resp, agentrpc.Status(err)
}

func (s *server) entered(ctx context.Context, req any, method string, handler grpc.UnaryHandler) (any, error) {
	if method == agentpb.AgentService_Drain_FullMethodName {
		return handler(ctx, req) // it waits for the others
	}
	if err := s.calls.enter(); err != nil {
		return nil, err
	}
	defer s.calls.leave()
	return handler(ctx, req)
}

func decisionField(d fencing.Decision) []zap.Field {
	if d == "" {
		return nil
	}
	return []zap.Field{zap.String(telemetry.KeyDecision, string(d))}
}

// fieldsOf names what a call is about.
func fieldsOf(req any) []zap.Field {
	switch r := req.(type) {
	case *agentpb.ReconcileStateRequest:
		return []zap.Field{zap.Bool("reconcile.complete", r.Complete), zap.Int("reconcile.volumes", len(r.Items))}
	case interface{ GetVolumeId() string }:
		id, err := storage.ParseVolumeID(r.GetVolumeId())
		if err != nil {
			return nil // the error quotes it
		}
		return []zap.Field{zap.String(telemetry.KeyPVName, id.Name)}
	}
	return nil
}
