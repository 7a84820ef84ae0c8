package scale

import (
	"context"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// Pool is the volume group every agent has, and its size in bytes.
const (
	Pool     = "vg0"
	poolSize = 1 << 50
)

// CreateTime is how long an agent takes to make or remove a backend, as lvcreate does on
// an idle machine.
const CreateTime = 30 * time.Millisecond

// Agent is a storage agent without storage: fencing and wire are the real ones.
type Agent struct {
	agentpb.UnimplementedAgentServiceServer
	Address string

	fence  *fencing.Store
	server *grpc.Server

	mu      sync.Mutex
	slow    time.Duration
	volumes map[string]int64            // agent volume ID -> bytes
	exports map[string]transport.Export // agent volume ID -> export
	creates map[string]int              // agent volume ID -> backends ever made
	calls   map[string]int              // RPC -> calls
}

// StartAgent serves an agent on a free port of the loopback address, its marks in dir.
func StartAgent(dir string) (*Agent, error) {
	fence, err := fencing.Open(dir)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start agent: %w", err)
	}
	a := &Agent{
		Address: listener.Addr().String(), fence: fence,
		volumes: map[string]int64{}, exports: map[string]transport.Export{}, creates: map[string]int{}, calls: map[string]int{},
	}
	a.server = grpc.NewServer(append(agentrpc.ServerOptions(), grpc.UnaryInterceptor(a.count))...)
	agentpb.RegisterAgentServiceServer(a.server, a)
	go a.server.Serve(listener)
	return a, nil
}

// Slow has each change take so much longer.
func (a *Agent) Slow(by time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.slow = by
}

// Stop ends the agent and waits for its calls.
func (a *Agent) Stop() { a.server.Stop() }

// count counts a call and gives its error the agent's status.
func (a *Agent) count(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	a.mu.Lock()
	a.calls[path.Base(info.FullMethod)]++
	a.mu.Unlock()
	resp, err := handle(ctx, req)
	return resp, agentrpc.Status(err)
}

// Calls answers how often each RPC was called.
func (a *Agent) Calls() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.calls)
}

// Volumes answers the volumes and the exports there are now, and how many backends were
// ever made of each volume.
func (a *Agent) Volumes() (volumes, exports []string, creates map[string]int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Sorted(maps.Keys(a.volumes)), slices.Sorted(maps.Keys(a.exports)), maps.Clone(a.creates)
}

// Granted counts the initiators admitted to exports.
func (a *Agent) Granted() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.exports {
		n += len(e.Initiators)
	}
	return n
}

// do runs one fenced change, which takes a while outside of the agent's own lock.
func (a *Agent) do(ctx context.Context, volume string, t *agentpb.FenceToken, op fencing.Op, takes time.Duration, act func() error) error {
	a.mu.Lock()
	takes += a.slow
	a.mu.Unlock()
	_, err := a.fence.Do(ctx, volume, agentrpc.Token(t), op, func(context.Context) error {
		time.Sleep(takes)
		a.mu.Lock()
		defer a.mu.Unlock()
		return act()
	})
	return err
}

// HealthCheck says that all is well.
func (a *Agent) HealthCheck(context.Context, *agentpb.HealthCheckRequest) (*agentpb.HealthCheckResponse, error) {
	return &agentpb.HealthCheckResponse{Version: "scale", Serving: true}, nil
}

// GetCapabilities offers the one pool.
func (a *Agent) GetCapabilities(context.Context, *agentpb.GetCapabilitiesRequest) (*agentpb.GetCapabilitiesResponse, error) {
	return &agentpb.GetCapabilitiesResponse{
		Backends: []string{string(storage.LVMLV)}, Protocols: []string{string(transport.NVMeTCP)},
		Pools: []*agentpb.DiscoveredPool{agentrpc.Pool(storage.Pool{
			Name: Pool, Type: "lvm", Capacity: storage.Capacity{Total: poolSize, Available: poolSize},
		})},
	}, nil
}

// GetCapacity answers a pool that is never full.
func (a *Agent) GetCapacity(context.Context, *agentpb.GetCapacityRequest) (*agentpb.GetCapacityResponse, error) {
	return &agentpb.GetCapacityResponse{TotalBytes: poolSize, AvailableBytes: poolSize}, nil
}

// CreateVolume makes a backend unless there is one.
func (a *Agent) CreateVolume(ctx context.Context, r *agentpb.CreateVolumeRequest) (*agentpb.CreateVolumeResponse, error) {
	err := a.do(ctx, r.VolumeId, r.Token, fencing.Op{Class: fencing.Grant, Create: true}, CreateTime, func() error {
		if have, ok := a.volumes[r.VolumeId]; ok {
			if have != r.SizeBytes {
				return fmt.Errorf("%s has %d bytes: %w", r.VolumeId, have, storage.ErrConflict)
			}
			return nil
		}
		a.volumes[r.VolumeId] = r.SizeBytes
		a.creates[r.VolumeId]++
		return nil
	})
	return &agentpb.CreateVolumeResponse{SizeBytes: r.SizeBytes, DevicePath: "/dev/" + r.VolumeId}, err
}

// ExpandVolume sets a volume's size.
func (a *Agent) ExpandVolume(ctx context.Context, r *agentpb.ExpandVolumeRequest) (*agentpb.ExpandVolumeResponse, error) {
	err := a.do(ctx, r.VolumeId, r.Token, fencing.Op{Class: fencing.Grant}, CreateTime, func() error {
		if _, ok := a.volumes[r.VolumeId]; !ok {
			return storage.ErrNotFound
		}
		a.volumes[r.VolumeId] = r.SizeBytes
		return nil
	})
	return &agentpb.ExpandVolumeResponse{SizeBytes: r.SizeBytes}, err
}

// DeleteVolume removes a backend; one still exported is busy, as a held device is.
func (a *Agent) DeleteVolume(ctx context.Context, r *agentpb.DeleteVolumeRequest) (*agentpb.DeleteVolumeResponse, error) {
	err := a.do(ctx, r.VolumeId, r.Token, fencing.Op{Class: fencing.Destroy, Delete: true}, CreateTime, func() error {
		if _, ok := a.exports[r.VolumeId]; ok {
			return fmt.Errorf("%s is exported: %w", r.VolumeId, storage.ErrBusy)
		}
		delete(a.volumes, r.VolumeId)
		return nil
	})
	return &agentpb.DeleteVolumeResponse{}, err
}

// ExportVolume makes an export.
func (a *Agent) ExportVolume(ctx context.Context, r *agentpb.ExportVolumeRequest) (*agentpb.ExportVolumeResponse, error) {
	e, err := agentrpc.Export(r.VolumeId, r.Export)
	if err == nil {
		err = a.do(ctx, r.VolumeId, r.Token, fencing.Op{Class: fencing.Grant}, 0, func() error {
			a.exports[r.VolumeId] = e
			return nil
		})
	}
	return &agentpb.ExportVolumeResponse{Export: agentrpc.ExportInfo(target(r.VolumeId, e))}, err
}

// target is an export as nvmet would have it.
func target(volume string, e transport.Export) transport.Target {
	return transport.Target{
		ID: nqn(volume), Portal: e.Portal, Ref: nqn(volume), Enabled: !e.Disabled, ACL: e.ACL, Initiators: e.Initiators,
	}
}

// nqn is the name of a volume's subsystem (block.md B-20).
func nqn(volume string) string {
	return "nqn.2026-01.com.bhyoo.pillar-csi:" + strings.ReplaceAll(volume, "/", ".")
}

// UnexportVolume removes an export.
func (a *Agent) UnexportVolume(ctx context.Context, r *agentpb.UnexportVolumeRequest) (*agentpb.UnexportVolumeResponse, error) {
	err := a.do(ctx, r.VolumeId, r.Token, fencing.Op{Class: fencing.Revoke}, 0, func() error {
		delete(a.exports, r.VolumeId)
		return nil
	})
	return &agentpb.UnexportVolumeResponse{}, err
}

// AllowInitiator admits a host to an export.
func (a *Agent) AllowInitiator(ctx context.Context, r *agentpb.AllowInitiatorRequest) (*agentpb.AllowInitiatorResponse, error) {
	err := a.do(ctx, r.VolumeId, r.Token, fencing.Op{Class: fencing.Grant}, 0, func() error {
		e, ok := a.exports[r.VolumeId]
		if !ok {
			return transport.ErrNotFound
		}
		if !slices.Contains(e.Initiators, r.InitiatorId) {
			e.Initiators = append(slices.Clone(e.Initiators), r.InitiatorId)
		}
		a.exports[r.VolumeId] = e
		return nil
	})
	return &agentpb.AllowInitiatorResponse{}, err
}

// DenyInitiator shuts a host out of an export.
func (a *Agent) DenyInitiator(ctx context.Context, r *agentpb.DenyInitiatorRequest) (*agentpb.DenyInitiatorResponse, error) {
	err := a.do(ctx, r.VolumeId, r.Token, fencing.Op{Class: fencing.Revoke}, 0, func() error {
		if e, ok := a.exports[r.VolumeId]; ok {
			e.Initiators = slices.DeleteFunc(slices.Clone(e.Initiators), func(id string) bool { return id == r.InitiatorId })
			a.exports[r.VolumeId] = e
		}
		return nil
	})
	return &agentpb.DenyInitiatorResponse{}, err
}

// ListExports answers what is exported.
func (a *Agent) ListExports(context.Context, *agentpb.ListExportsRequest) (*agentpb.ListExportsResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resp := &agentpb.ListExportsResponse{}
	for volume, e := range a.exports {
		resp.Exports = append(resp.Exports, agentrpc.ExportInfo(target(volume, e)))
	}
	return resp, nil
}

// ReconcileState makes the exports that are sent.
func (a *Agent) ReconcileState(ctx context.Context, r *agentpb.ReconcileStateRequest) (*agentpb.ReconcileStateResponse, error) {
	resp := &agentpb.ReconcileStateResponse{}
	for _, item := range r.Items {
		e, err := agentrpc.Export(item.VolumeId, item.Export)
		if err == nil {
			err = a.do(ctx, item.VolumeId, item.Token, fencing.Op{Class: fencing.Grant}, 0, func() error {
				a.exports[item.VolumeId] = e
				return nil
			})
		}
		resp.Results = append(resp.Results, agentrpc.Result(item.VolumeId, err))
	}
	return resp, nil
}
