package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// fakeAgent is an agent whose disks and exports are maps. Fencing is the real one.
type fakeAgent struct {
	agentpb.UnimplementedAgentServiceServer
	fence   *fencing.Store
	address string
	stop    func()

	mu      sync.Mutex
	gated   bool
	shut    bool                        // the port of all: only a complete request opens it
	volumes map[string]int64            // agent volume ID -> bytes
	exports map[string]transport.Export // agent volume ID -> export
	creates int                         // backends ever made
	fail    map[string]error            // RPC, or agent volume ID in a reconcile -> what it answers before any effect
	calls   []string                    // "<RPC> <generation>"

	see    grpc.UnaryServerInterceptor            // not nil: sees every request, before the server runs
	effect func(volume string, tok fencing.Token) // not nil: told of each change made, under mu

	hang chan struct{} // not nil: told of each HealthCheck, which then never answers
}

// extent is what its sizes are rounded up to, in bytes.
const extent = 4 << 20

func startFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	fence, err := fencing.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	a := &fakeAgent{
		fence: fence, address: "127.0.0.1:0",
		volumes: map[string]int64{}, exports: map[string]transport.Export{}, fail: map[string]error{},
	}
	a.serve(t)
	return a
}

// serve starts the agent's process; stop ends it.
func (a *fakeAgent) serve(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", a.address)
	if err != nil {
		t.Fatal(err)
	}
	a.address = listener.Addr().String()
	server := grpc.NewServer(append(agentrpc.ServerOptions(), grpc.UnaryInterceptor(a.intercept))...)
	agentpb.RegisterAgentServiceServer(server, a)
	go server.Serve(listener)
	a.stop = server.Stop
	t.Cleanup(server.Stop)
}

func (a *fakeAgent) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	a.mu.Lock()
	see := a.see
	a.mu.Unlock()
	if see == nil {
		return handler(ctx, req)
	}
	return see(ctx, req, info, handler)
}

// do runs one fenced change, as the real agent does.
func (a *fakeAgent) do(ctx context.Context, rpc, volume string, t *agentpb.FenceToken, op fencing.Op, gated bool, act func() error) error {
	a.mu.Lock()
	a.calls = append(a.calls, fmt.Sprintf("%s g%d", rpc, t.GetGeneration()))
	err := a.fail[rpc]
	if gated && a.gated {
		err = fmt.Errorf("export restore pending: %w", agentrpc.ErrUnavailable)
	}
	a.mu.Unlock()
	if err != nil {
		return agentrpc.Status(err)
	}
	return agentrpc.Status(a.fenced(ctx, volume, agentrpc.Token(t), op, act))
}

func (a *fakeAgent) fenced(ctx context.Context, volume string, tok fencing.Token, op fencing.Op, act func() error) error {
	_, err := a.fence.Do(ctx, volume, tok, op, func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		err := act()
		if err == nil && a.effect != nil {
			a.effect(volume, tok)
		}
		return err
	})
	return err
}

func (a *fakeAgent) HealthCheck(ctx context.Context, _ *agentpb.HealthCheckRequest) (*agentpb.HealthCheckResponse, error) {
	if a.hang != nil {
		a.hang <- struct{}{}
		<-ctx.Done()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return &agentpb.HealthCheckResponse{Version: "test", Serving: true, ExportsGated: a.gated}, agentrpc.Status(a.fail["HealthCheck"])
}

func (a *fakeAgent) GetCapabilities(context.Context, *agentpb.GetCapabilitiesRequest) (*agentpb.GetCapabilitiesResponse, error) {
	return &agentpb.GetCapabilitiesResponse{
		Backends: []string{"lvm-lv"}, Protocols: []string{"nvmeof-tcp"},
		Pools: []*agentpb.DiscoveredPool{agentrpc.Pool(storage.Pool{
			Name: "vg0", Type: "lvm", Capacity: pools["vg0"],
		})},
	}, nil
}

// pools are what it has; GetCapabilities shows the first alone.
var pools = map[string]storage.Capacity{
	"vg0": {Total: 10 << 30, Available: 8 << 30},
	"vg1": {Total: 4 << 30, Available: 3 << 30},
}

func (a *fakeAgent) GetCapacity(_ context.Context, r *agentpb.GetCapacityRequest) (*agentpb.GetCapacityResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c, ok := pools[r.Pool]
	err := a.fail["GetCapacity"]
	if err == nil && (!ok || r.Backend != string(storage.LVMLV)) {
		err = fmt.Errorf("%s pool %s: %w", r.Backend, r.Pool, storage.ErrNotFound)
	}
	return &agentpb.GetCapacityResponse{TotalBytes: c.Total, AvailableBytes: c.Available}, agentrpc.Status(err)
}

func (a *fakeAgent) CreateVolume(ctx context.Context, r *agentpb.CreateVolumeRequest) (*agentpb.CreateVolumeResponse, error) {
	spec, err := agentrpc.Spec(r)
	if err != nil {
		return nil, agentrpc.Status(err)
	}
	size := (spec.Bytes + extent - 1) / extent * extent
	op := fencing.Op{Class: fencing.Grant, Create: true, Taken: func(context.Context) (bool, error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		_, there := a.volumes[r.VolumeId]
		return there, nil
	}}
	err = a.do(ctx, "CreateVolume", r.VolumeId, r.Token, op, false, func() error {
		if have, ok := a.volumes[r.VolumeId]; ok && have != size {
			return fmt.Errorf("%s has %d bytes: %w", r.VolumeId, have, storage.ErrConflict)
		} else if ok {
			return nil
		}
		if spec.Bytes > 8<<30 {
			return storage.ErrNoSpace
		}
		a.creates++
		a.volumes[r.VolumeId] = size
		return nil
	})
	return &agentpb.CreateVolumeResponse{SizeBytes: size, DevicePath: "/dev/" + r.VolumeId}, err
}

func (a *fakeAgent) ExpandVolume(ctx context.Context, r *agentpb.ExpandVolumeRequest) (*agentpb.ExpandVolumeResponse, error) {
	size := (r.SizeBytes + extent - 1) / extent * extent
	err := a.do(ctx, "ExpandVolume", r.VolumeId, r.Token, fencing.Op{Class: fencing.Grant}, false, func() error {
		switch have, ok := a.volumes[r.VolumeId]; {
		case !ok:
			return storage.ErrNotFound
		case have > size:
			return fmt.Errorf("%w: cannot shrink from %d to %d bytes", storage.ErrOutOfRange, have, size)
		case r.SizeBytes > 8<<30:
			return storage.ErrNoSpace
		}
		a.volumes[r.VolumeId] = size
		return nil
	})
	return &agentpb.ExpandVolumeResponse{SizeBytes: size}, err
}

func (a *fakeAgent) DeleteVolume(ctx context.Context, r *agentpb.DeleteVolumeRequest) (*agentpb.DeleteVolumeResponse, error) {
	err := a.do(ctx, "DeleteVolume", r.VolumeId, r.Token, fencing.Op{Class: fencing.Destroy, Delete: true}, false, func() error {
		if _, ok := a.exports[r.VolumeId]; ok {
			return fmt.Errorf("%s is exported: %w", r.VolumeId, storage.ErrBusy)
		}
		delete(a.volumes, r.VolumeId)
		return nil
	})
	return &agentpb.DeleteVolumeResponse{}, err
}

func (a *fakeAgent) ExportVolume(ctx context.Context, r *agentpb.ExportVolumeRequest) (*agentpb.ExportVolumeResponse, error) {
	e, err := agentrpc.Export(r.VolumeId, r.Export)
	if err != nil {
		return nil, agentrpc.Status(err)
	}
	err = a.do(ctx, "ExportVolume", r.VolumeId, r.Token, fencing.Op{Class: fencing.Grant}, true, func() error {
		a.exports[r.VolumeId] = e
		return nil
	})
	nqn := settings.TargetPrefix + settings.TargetSuffix(r.VolumeId)
	return &agentpb.ExportVolumeResponse{Export: agentrpc.ExportInfo(transport.Target{ID: nqn, Portal: e.Portal, Ref: nqn, Enabled: true, ACL: e.ACL})}, err
}

func (a *fakeAgent) UnexportVolume(ctx context.Context, r *agentpb.UnexportVolumeRequest) (*agentpb.UnexportVolumeResponse, error) {
	err := a.do(ctx, "UnexportVolume", r.VolumeId, r.Token, fencing.Op{Class: fencing.Revoke}, false, func() error {
		delete(a.exports, r.VolumeId)
		return nil
	})
	return &agentpb.UnexportVolumeResponse{}, err
}

func (a *fakeAgent) AllowInitiator(ctx context.Context, r *agentpb.AllowInitiatorRequest) (*agentpb.AllowInitiatorResponse, error) {
	if _, err := transport.ParseNQN(r.InitiatorId); err != nil {
		return nil, agentrpc.Status(err)
	}
	err := a.do(ctx, "AllowInitiator", r.VolumeId, r.Token, fencing.Op{Class: fencing.Grant}, true, func() error {
		e, ok := a.exports[r.VolumeId]
		if !ok {
			return transport.ErrNotFound
		}
		if r.AclEnabled && !slices.Contains(e.Initiators, r.InitiatorId) {
			e.Initiators = append(slices.Clone(e.Initiators), r.InitiatorId)
		}
		a.exports[r.VolumeId] = e
		return nil
	})
	return &agentpb.AllowInitiatorResponse{}, err
}

func (a *fakeAgent) DenyInitiator(ctx context.Context, r *agentpb.DenyInitiatorRequest) (*agentpb.DenyInitiatorResponse, error) {
	if _, err := transport.ParseNQN(r.InitiatorId); err != nil {
		return nil, agentrpc.Status(err)
	}
	err := a.do(ctx, "DenyInitiator", r.VolumeId, r.Token, fencing.Op{Class: fencing.Revoke}, false, func() error {
		e, ok := a.exports[r.VolumeId]
		if !ok {
			return nil // nobody is admitted
		}
		e.Initiators = slices.DeleteFunc(slices.Clone(e.Initiators), func(id string) bool { return id == r.InitiatorId })
		a.exports[r.VolumeId] = e
		return nil
	})
	return &agentpb.DenyInitiatorResponse{}, err
}

// ReconcileState refuses single volumes while gated. A complete request opens the gate
// unless one of its volumes fails for another reason than its token.
func (a *fakeAgent) ReconcileState(ctx context.Context, r *agentpb.ReconcileStateRequest) (*agentpb.ReconcileStateResponse, error) {
	a.mu.Lock()
	a.calls = append(a.calls, fmt.Sprintf("ReconcileState complete=%t items=%d", r.Complete, len(r.Items)))
	err := a.fail["ReconcileState"]
	if a.gated && !r.Complete {
		err = fmt.Errorf("export restore pending: %w", agentrpc.ErrUnavailable)
	}
	a.mu.Unlock()
	if err != nil {
		return nil, agentrpc.Status(err)
	}
	resp, open := &agentpb.ReconcileStateResponse{}, r.Complete
	for _, item := range r.Items {
		err := a.reconcile(ctx, item, r.Complete)
		open = open && (err == nil || errors.Is(err, fencing.ErrStale))
		resp.Results = append(resp.Results, agentrpc.Result(item.VolumeId, err))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gated, a.shut = a.gated && !open, a.shut && !open
	return resp, nil
}

func (a *fakeAgent) reconcile(ctx context.Context, item *agentpb.ReconcileItem, complete bool) error {
	e, err := agentrpc.Export(item.VolumeId, item.Export)
	if err != nil {
		return err
	}
	return a.fenced(ctx, item.VolumeId, agentrpc.Token(item.Token), fencing.Op{Class: fencing.Grant}, func() error {
		if err := a.fail[item.VolumeId]; err != nil {
			return err
		}
		if a.shut && !complete {
			return fmt.Errorf("export restore pending: port could not be opened: %w", agentrpc.ErrUnavailable)
		}
		a.exports[item.VolumeId] = e
		return nil
	})
}

// have answers the agent's volumes and exports, sorted, and how many backends were made.
func (a *fakeAgent) have() (volumes, exports []string, creates int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.volumes)), slices.Sorted(maps.Keys(a.exports)), a.creates
}

// take answers the calls since the last take.
func (a *fakeAgent) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	calls := a.calls
	a.calls = nil
	return calls
}

func (a *fakeAgent) set(change func(*fakeAgent)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}
