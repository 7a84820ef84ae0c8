package agentrpc

import (
	"context"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// How long one call may take (block.md U-49): a create zeroes and verifies a device. A
// reconcile gets more for each item, for after a reboot every volume is activated in it: a
// request that is cut off opens no gate, however often it is repeated. What hangs costs an
// agent seconds once a pool, not for each item, so its answer arrives.
const (
	createDeadline = 60 * time.Second
	callDeadline   = 30 * time.Second
	itemDeadline   = 4 * time.Second
)

// maxMessage bounds a request and its answer, in bytes. The complete request of 2,500
// volumes published to one node each is 0.4 MB, and as much again for every further
// node; errors fill the answer. gRPC's own bound of 4 MiB is near enough to be met, and a
// complete request cannot be split.
const maxMessage = 64 << 20

// reconnect bounds the pause between attempts to reach an agent that restarts: gRPC's
// own two minutes would keep a restored node waiting.
var reconnect = grpc.ConnectParams{
	Backoff:           backoff.Config{BaseDelay: 500 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: 5 * time.Second,
}

// ping finds out that an agent's machine is gone without a word. TCP alone would take a
// quarter of an hour, and then minutes more to notice that it is back.
var ping = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second, PermitWithoutStream: true}

// ServerOptions make a server accept what clients send: the pings to find out that it is
// gone, which gRPC's own policy would hang up on, and a complete request in one message.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: ping.Time / 2, PermitWithoutStream: true}),
		grpc.MaxRecvMsgSize(maxMessage),
	}
}

// Config of a connection. The zero value is plaintext TCP.
type Config struct {
	Dialer func(ctx context.Context, address string) (net.Conn, error) // nil: TCP
}

// Client calls one agent. Its methods are safe for concurrent use; every error has the
// kind it had in the agent, or ErrUnavailable.
type Client struct {
	conn  *grpc.ClientConn
	agent agentpb.AgentServiceClient
}

// Dial prepares a connection to host:port. It connects when first used and again
// whenever it was lost; an agent that is not there is ErrUnavailable of the call.
func Dial(address string, cfg Config) (*Client, error) {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(reconnect),
		grpc.WithKeepaliveParams(ping),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	}
	if cfg.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(cfg.Dialer))
	}
	conn, err := grpc.NewClient(address, opts...)
	if err != nil {
		return nil, fmt.Errorf("dial agent %s: %w", address, err)
	}
	return &Client{conn: conn, agent: agentpb.NewAgentServiceClient(conn)}, nil
}

// Close ends the connection and the calls on it.
func (c *Client) Close() error { return c.conn.Close() }

// Watch calls changed each time the connection came up or broke, until ctx ends or the
// client is closed. While it runs a lost connection is made again at once, without a call.
func (c *Client) Watch(ctx context.Context, changed func()) {
	for up := false; ; {
		state := c.conn.GetState()
		if up || state == connectivity.Ready {
			changed()
		}
		up = state == connectivity.Ready
		if state == connectivity.Idle {
			c.conn.Connect()
		}
		if state == connectivity.Shutdown || !c.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// call runs one RPC within its deadline and gives its error a kind.
func call[Req, Resp any](ctx context.Context, limit time.Duration,
	rpc func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req,
) (Resp, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := rpc(ctx, req)
	return resp, fromStatus(err)
}

// Health is what an agent says about itself.
type Health struct {
	Version    string
	Serving    bool
	Gated      bool // exports wait for the complete request
	Subsystems []Subsystem
}

// Subsystem is one thing an agent depends on.
type Subsystem struct {
	Name    string // lvm, nvmet_configfs, pool, ...
	Pool    string // only for pool
	Healthy bool
	Message string
}

// Health asks how the agent is. A degraded agent answers; it is no error.
func (c *Client) Health(ctx context.Context) (Health, error) {
	r, err := call(ctx, callDeadline, c.agent.HealthCheck, &agentpb.HealthCheckRequest{})
	if err != nil {
		return Health{}, err
	}
	h := Health{Version: r.Version, Serving: r.Serving, Gated: r.ExportsGated}
	for _, s := range r.Subsystems {
		h.Subsystems = append(h.Subsystems, Subsystem{Name: s.Name, Pool: s.Pool, Healthy: s.Healthy, Message: s.Message})
	}
	return h, nil
}

// Capabilities is what an agent offers now.
type Capabilities struct {
	Backends  []storage.BackendType
	Protocols []transport.Kind
	Pools     []storage.Pool
}

// Capabilities asks what the agent offers.
func (c *Client) Capabilities(ctx context.Context) (Capabilities, error) {
	r, err := call(ctx, callDeadline, c.agent.GetCapabilities, &agentpb.GetCapabilitiesRequest{})
	if err != nil {
		return Capabilities{}, err
	}
	var caps Capabilities
	for _, b := range r.Backends {
		caps.Backends = append(caps.Backends, storage.BackendType(b))
	}
	for _, p := range r.Protocols {
		caps.Protocols = append(caps.Protocols, transport.Kind(p))
	}
	for _, p := range r.Pools {
		caps.Pools = append(caps.Pools, toPool(p))
	}
	return caps, nil
}

// Capacity asks for a pool's bytes. A pool the tool or the configuration does not know
// is storage.ErrNotFound.
func (c *Client) Capacity(ctx context.Context, backend storage.BackendType, pool string) (storage.Capacity, error) {
	r, err := call(ctx, callDeadline, c.agent.GetCapacity, &agentpb.GetCapacityRequest{Backend: string(backend), Pool: pool})
	if err != nil {
		return storage.Capacity{}, err
	}
	return storage.Capacity{Total: r.TotalBytes, Available: r.AvailableBytes}, nil
}

// CreateVolume makes the volume, or answers the equal one that is there.
func (c *Client) CreateVolume(ctx context.Context, tok fencing.Token, s storage.Spec) (storage.Volume, error) {
	r, err := call(ctx, createDeadline, c.agent.CreateVolume, &agentpb.CreateVolumeRequest{
		Token: fromToken(tok), VolumeId: s.ID.String(), SizeBytes: s.Bytes, Parameters: fromSpec(s),
	})
	if err != nil {
		return storage.Volume{}, err
	}
	return storage.Volume{ID: s.ID, Bytes: r.SizeBytes, DevicePath: r.DevicePath}, nil
}

// ExpandVolume makes the volume as large as bytes and answers its actual size, 0 if the
// agent does not say. Smaller than it is, is storage.ErrOutOfRange.
func (c *Client) ExpandVolume(ctx context.Context, tok fencing.Token, backend storage.BackendType, kind transport.Kind, id storage.VolumeID, bytes int64) (int64, error) {
	r, err := call(ctx, callDeadline, c.agent.ExpandVolume, &agentpb.ExpandVolumeRequest{
		Token: fromToken(tok), VolumeId: id.String(), Backend: string(backend), Protocol: string(kind), SizeBytes: bytes,
	})
	return r.GetSizeBytes(), err
}

// DeleteVolume removes the volume; an absent one is success.
func (c *Client) DeleteVolume(ctx context.Context, tok fencing.Token, backend storage.BackendType, id storage.VolumeID) error {
	_, err := call(ctx, callDeadline, c.agent.DeleteVolume, &agentpb.DeleteVolumeRequest{
		Token: fromToken(tok), VolumeId: id.String(), Backend: string(backend),
	})
	return err
}
