package agentrpc_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// agent answers every call with err and keeps the last request.
type agent struct {
	agentpb.UnimplementedAgentServiceServer
	err  error
	spec storage.Spec
	tok  fencing.Token
	item transport.Export
	left time.Duration // until the last reconcile's deadline
	info *agentpb.ExportInfo
}

func (a *agent) ExportVolume(context.Context, *agentpb.ExportVolumeRequest) (*agentpb.ExportVolumeResponse, error) {
	return &agentpb.ExportVolumeResponse{Export: a.info}, nil
}

func (a *agent) HealthCheck(context.Context, *agentpb.HealthCheckRequest) (*agentpb.HealthCheckResponse, error) {
	return &agentpb.HealthCheckResponse{}, agentrpc.Status(a.err)
}

func (a *agent) CreateVolume(_ context.Context, r *agentpb.CreateVolumeRequest) (*agentpb.CreateVolumeResponse, error) {
	var err error
	a.tok = agentrpc.Token(r.Token)
	a.spec, err = agentrpc.Spec(r)
	return &agentpb.CreateVolumeResponse{SizeBytes: r.SizeBytes, DevicePath: "/dev/vg0/pvc-1"}, agentrpc.Status(err)
}

func (a *agent) ReconcileState(ctx context.Context, r *agentpb.ReconcileStateRequest) (*agentpb.ReconcileStateResponse, error) {
	var err error
	a.item, err = agentrpc.Export(r.Items[0].VolumeId, r.Items[0].Export)
	deadline, _ := ctx.Deadline()
	a.left = time.Until(deadline)
	return &agentpb.ReconcileStateResponse{Results: []*agentpb.ReconcileItemResult{
		agentrpc.Result(r.Items[0].VolumeId, a.err),
	}}, agentrpc.Status(err)
}

func (a *agent) DeleteVolume(context.Context, *agentpb.DeleteVolumeRequest) (*agentpb.DeleteVolumeResponse, error) {
	return nil, status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
}

func dial(t *testing.T, a agentpb.AgentServiceServer, opts ...grpc.ServerOption) *agentrpc.Client {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(opts...)
	agentpb.RegisterAgentServiceServer(srv, a)
	go srv.Serve(lis)
	t.Cleanup(srv.Stop)
	c, err := agentrpc.Dial("passthrough:agent", agentrpc.Config{
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// kinds a caller acts on, with the code that stands for them.
var kinds = map[string]struct {
	err  error
	code codes.Code
}{
	"storage invalid":        {storage.ErrInvalid, codes.InvalidArgument},
	"storage not found":      {storage.ErrNotFound, codes.NotFound},
	"storage conflict":       {storage.ErrConflict, codes.AlreadyExists},
	"storage no space":       {storage.ErrNoSpace, codes.ResourceExhausted},
	"storage busy":           {storage.ErrBusy, codes.FailedPrecondition},
	"storage precondition":   {storage.ErrPrecondition, codes.FailedPrecondition},
	"storage out of range":   {storage.ErrOutOfRange, codes.OutOfRange},
	"storage unsupported":    {storage.ErrUnsupported, codes.Unimplemented},
	"transport invalid":      {transport.ErrInvalid, codes.InvalidArgument},
	"transport not found":    {transport.ErrNotFound, codes.NotFound},
	"transport busy":         {transport.ErrBusy, codes.FailedPrecondition},
	"transport precondition": {transport.ErrPrecondition, codes.FailedPrecondition},
	"transport unsupported":  {transport.ErrUnsupported, codes.Unimplemented},
	"stale":                  {fencing.ErrStale, codes.FailedPrecondition},
	"foreign":                {fencing.ErrForeign, codes.AlreadyExists},
	"mark":                   {fencing.ErrMark, codes.Internal},
	"unavailable":            {agentrpc.ErrUnavailable, codes.Unavailable},
	"deadline":               {context.DeadlineExceeded, codes.DeadlineExceeded},
	"canceled":               {context.Canceled, codes.Canceled},
}

func TestStatus_kindsCrossTheWire(t *testing.T) {
	a := &agent{}
	c := dial(t, a)
	for name, tt := range kinds {
		t.Run(name, func(t *testing.T) {
			a.err = fmt.Errorf("create pvc-1: %w", tt.err)
			_, call := c.Health(t.Context())
			item := reconcileOne(t, c)
			for from, got := range map[string]error{"call": call, "item": item} {
				checkKind(t, from, got, tt.err)
				if got.Error() != a.err.Error() {
					t.Errorf("%s: text = %q, want %q", from, got, a.err)
				}
				if code := agentrpc.CodeOf(got); code != tt.code {
					t.Errorf("%s: CodeOf(%v) = %v, want %v", from, got, code, tt.code)
				}
			}
		})
	}
}

// checkKind wants got to be of this kind and of no other.
func checkKind(t *testing.T, from string, got, want error) {
	t.Helper()
	for name, k := range kinds {
		if is := errors.Is(got, k.err); is != (k.err == want) {
			t.Errorf("%s: errors.Is(%v, %s) = %v", from, got, name, is)
		}
	}
}

func reconcileOne(t *testing.T, c *agentrpc.Client) error {
	t.Helper()
	res, err := c.Reconcile(t.Context(), true, []agentrpc.Item{{Export: transport.Export{
		Kind: transport.NVMeTCP, Volume: "vg0/pvc-1", Portal: transport.Portal{Address: "::1"},
	}}})
	if err != nil || len(res) != 1 {
		t.Fatalf("Reconcile = %v, %v, want one result", res, err)
	}
	return res[0].Err
}

func TestStatus_rejectionKeepsItsDecision(t *testing.T) {
	a := &agent{err: fmt.Errorf("create pvc-1: %w", &fencing.Rejection{Decision: "reject_superseded"})}
	c := dial(t, a)
	_, call := c.Health(t.Context())
	for from, got := range map[string]error{"call": call, "item": reconcileOne(t, c)} {
		var r *fencing.Rejection
		if !errors.Is(got, fencing.ErrStale) || !errors.As(got, &r) || r.Decision != "reject_superseded" {
			t.Errorf("%s: error = %#v, want ErrStale with reject_superseded", from, got)
		}
	}
}

func TestClient_grpcsOwnStatuses(t *testing.T) {
	c := dial(t, &agent{})
	_, err := c.Capacity(t.Context(), storage.LVMLV, "vg0") // the stub answers
	checkKind(t, "unimplemented", err, storage.ErrUnsupported)
	err = c.DeleteVolume(t.Context(), fencing.Token{}, storage.LVMLV, storage.VolumeID{Pool: "vg0", Name: "a"})
	checkKind(t, "a full message buffer", err, nil) // no pool is full
	if agentrpc.CodeOf(err) != codes.ResourceExhausted {
		t.Errorf("CodeOf(%v) = %v, want ResourceExhausted", err, agentrpc.CodeOf(err))
	}
	away, err := agentrpc.Dial("127.0.0.1:1", agentrpc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	_, err = away.Health(t.Context())
	checkKind(t, "nobody there", err, agentrpc.ErrUnavailable)
}

func TestClient_CreateVolume(t *testing.T) {
	a := &agent{}
	c := dial(t, a)
	tok := fencing.Token{UID: "u1", Generation: 7}
	spec := storage.Spec{
		ID: storage.VolumeID{Pool: "vg0", Name: "pvc-1"}, Bytes: 1 << 20, Backend: storage.LVMLV,
		LVM: &storage.LVMParams{VolumeGroup: "vg0", ThinPool: "tp", Mode: "thin"},
	}
	vol, err := c.CreateVolume(t.Context(), tok, spec)
	want := storage.Volume{ID: spec.ID, Bytes: 1 << 20, DevicePath: "/dev/vg0/pvc-1"}
	if err != nil || vol != want {
		t.Errorf("CreateVolume = %v, %v, want %v", vol, err, want)
	}
	if diff := cmp.Diff(spec, a.spec); diff != "" || a.tok != tok {
		t.Errorf("agent saw token %v, want %v; spec differs (-sent +seen):\n%s", a.tok, tok, diff)
	}
}

func TestSpec_refuses(t *testing.T) {
	lvm := &agentpb.BackendParameters{Type: "lvm-lv", Lvm: &agentpb.LVMParameters{VolumeGroup: "vg0"}}
	tests := map[string]struct {
		req  *agentpb.CreateVolumeRequest
		want error
	}{
		"no volume ID":      {&agentpb.CreateVolumeRequest{SizeBytes: 1, Parameters: lvm}, storage.ErrInvalid},
		"two slashes":       {&agentpb.CreateVolumeRequest{VolumeId: "vg0/a/b", SizeBytes: 1, Parameters: lvm}, storage.ErrInvalid},
		"no size":           {&agentpb.CreateVolumeRequest{VolumeId: "vg0/a", Parameters: lvm}, storage.ErrInvalid},
		"no parameters":     {&agentpb.CreateVolumeRequest{VolumeId: "vg0/a", SizeBytes: 1}, storage.ErrInvalid},
		"pools that differ": {&agentpb.CreateVolumeRequest{VolumeId: "vg1/a", SizeBytes: 1, Parameters: lvm}, storage.ErrInvalid},
		"another's parameters": {&agentpb.CreateVolumeRequest{VolumeId: "vg0/a", SizeBytes: 1,
			Parameters: &agentpb.BackendParameters{Type: "zfs-zvol", Lvm: lvm.Lvm}}, storage.ErrInvalid},
		"an unknown backend": {&agentpb.CreateVolumeRequest{VolumeId: "vg0/a", SizeBytes: 1,
			Parameters: &agentpb.BackendParameters{Type: "btrfs"}}, storage.ErrUnsupported},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if s, err := agentrpc.Spec(tt.req); !errors.Is(err, tt.want) {
				t.Errorf("Spec(%v) = %v, %v, want %v", tt.req, s, err, tt.want)
			}
		})
	}
}

func TestClient_Reconcile(t *testing.T) {
	a := &agent{}
	c := dial(t, a)
	size := int32(0)
	want := transport.Export{
		Kind: transport.NVMeTCP, Volume: "vg0/pvc-1", Portal: transport.Portal{Address: "10.0.0.1", Port: 4420},
		ACL: true, Initiators: []string{"nqn.a"}, Disabled: true, InCapsuleDataSize: &size,
	}
	if _, err := c.Reconcile(t.Context(), false, []agentrpc.Item{{Export: want}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, a.item); diff != "" {
		t.Errorf("agent saw another export (-sent +seen):\n%s", diff)
	}
	if _, err := c.Reconcile(t.Context(), true, make([]agentrpc.Item, 300)); a.left < 5*time.Minute {
		t.Errorf("300 items have %s, want the time to activate 300 volumes (%v)", a.left, err)
	}
}

// TestClient_Watch: a connection is made without a call, told of, and made again.
func TestClient_Watch(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	changed := make(chan struct{}, 100)
	c, err := agentrpc.Dial(listener.Addr().String(), agentrpc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var watch sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	for _, ctx := range []context.Context{ctx, context.WithoutCancel(ctx)} {
		watch.Go(func() { c.Watch(ctx, func() { changed <- struct{}{} }) })
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	srv := grpc.NewServer()
	go srv.Serve(listener)
	<-changed
	<-changed
	srv.Stop()
	<-changed
	<-changed
	stop() // ends one, Close the other
	c.Close()
	watch.Wait()
}

// A port is not cut to what fits, in a request or an answer.
func TestPort(t *testing.T) {
	a := &agent{}
	c := dial(t, a)
	for port, good := range map[int32]bool{-1: false, 0: true, 4420: true, 65535: true, 65536: false, 65536 + 4420: false} {
		got, err := agentrpc.Export("vg0/pvc-1", &agentpb.ExportSpec{Protocol: "nvmeof-tcp", BindAddress: "10.0.0.1", Port: port})
		if errors.Is(err, transport.ErrInvalid) == good || good && int32(got.Portal.Port) != port {
			t.Errorf("Export at port %d = %+v, %v", port, got.Portal, err)
		}
		a.info = &agentpb.ExportInfo{TargetId: "nqn.a", Port: port}
		answer, err := c.ExportVolume(t.Context(), fencing.Token{}, storage.LVMLV, transport.Export{Volume: "vg0/pvc-1"})
		if (err == nil) != good || good && int32(answer.Portal.Port) != port {
			t.Errorf("ExportVolume answered port %d = %+v, %v", port, answer.Portal, err)
		}
	}
}

// Two spellings of one address are one listener.
func TestExport_canonicalAddress(t *testing.T) {
	tests := map[string]string{
		"10.0.0.1":         "10.0.0.1",
		"::ffff:10.0.0.1":  "10.0.0.1",
		"FD00:0:0:0::11":   "fd00::11",
		"fd00::11":         "fd00::11",
		"2001:db8:0:0:0::": "2001:db8::",
	}
	for in, want := range tests {
		got, err := agentrpc.Export("vg0/pvc-1", &agentpb.ExportSpec{Protocol: "nvmeof-tcp", BindAddress: in})
		if err != nil || got.Portal.Address != want {
			t.Errorf("Export at %s = %q, %v, want %q", in, got.Portal.Address, err, want)
		}
	}
}
