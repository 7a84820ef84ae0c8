package csiserve

import (
	"context"
	"errors"
	"net"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pillar-csi/pillar/storage"
)

// controller is a Controller service whose calls do what a test says.
type controller struct {
	csi.UnimplementedControllerServer
	create  func(context.Context) error
	remove  func(context.Context) error
	started chan struct{} // one value per DeleteVolume that got the lock
}

func (c *controller) CreateVolume(ctx context.Context, _ *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return &csi.CreateVolumeResponse{}, c.create(ctx)
}

func (c *controller) DeleteVolume(ctx context.Context, _ *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	if c.started != nil {
		c.started <- struct{}{}
	}
	return &csi.DeleteVolumeResponse{}, c.remove(ctx)
}

// plugin is a served plugin and the log it wrote.
type plugin struct {
	conn *grpc.ClientConn
	logs *observer.ObservedLogs
	stop func() error // ends Run and answers its error
}

// serve runs cfg on a fresh socket unless cfg names one.
func serve(t *testing.T, cfg Config, c *controller) *plugin {
	t.Helper()
	if cfg.Address == "" {
		cfg.Address = filepath.Join(t.TempDir(), "csi.sock")
	}
	core, logs := observer.New(zapcore.InfoLevel)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, cfg, zap.New(core), func(r grpc.ServiceRegistrar) { csi.RegisterControllerServer(r, c) })
	}()
	conn, err := grpc.NewClient("unix://"+strings.TrimPrefix(cfg.Address, "unix://"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	stopped := false
	p := &plugin{conn: conn, logs: logs}
	p.stop = func() error { stopped = true; cancel(); return <-done }
	t.Cleanup(func() {
		conn.Close()
		if !stopped {
			p.stop()
		}
	})
	return p
}

func withDeadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestRun_Identity(t *testing.T) {
	cfg := Config{
		Name: "pillar-csi.bhyoo.com", Version: "v1",
		Probe:        func(context.Context) error { return errors.New("no fabrics device") },
		Capabilities: []*csi.PluginCapability{{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}}},
	}
	p := serve(t, cfg, &controller{})
	client, ctx := csi.NewIdentityClient(p.conn), withDeadline(t, 10*time.Second)
	info, err := client.GetPluginInfo(ctx, &csi.GetPluginInfoRequest{})
	if err != nil || info.GetName() != cfg.Name || info.GetVendorVersion() != cfg.Version {
		t.Errorf("GetPluginInfo() = %v, %v, want name and version of %+v", info, err, cfg)
	}
	caps, err := client.GetPluginCapabilities(ctx, &csi.GetPluginCapabilitiesRequest{})
	if err != nil || len(caps.GetCapabilities()) != 1 {
		t.Errorf("GetPluginCapabilities() = %v, %v, want one capability", caps, err)
	}
	_, err = client.Probe(ctx, &csi.ProbeRequest{})
	if status.Code(err) != FailedPrecondition || !strings.Contains(err.Error(), "no fabrics device") {
		t.Errorf("Probe() = %v, want FailedPrecondition with the reason", err)
	}
}

func TestRun_Log(t *testing.T) {
	answers := map[string]error{
		"grows":   nil,
		"is full": storage.ErrNoSpace,
	}
	var next error
	c := &controller{create: func(context.Context) error { return next }}
	c.remove = func(ctx context.Context) error { Unchanged(ctx); return nil }
	p := serve(t, Config{}, c)
	client, ctx := csi.NewControllerClient(p.conn), withDeadline(t, 10*time.Second)
	secret := map[string]string{"password": "hunter2hunter2"}
	for name, answer := range answers {
		next = answer
		client.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: name, Secrets: secret})
	}
	client.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: "gone", Secrets: secret})

	got := map[string]string{}
	for _, e := range p.logs.FilterField(zap.String("grpc.method", "/csi.v1.Controller/CreateVolume")).All() {
		m := e.ContextMap()
		got[m["pillar_csi.pv.name"].(string)] = e.Level.String() + " " + e.Message + " " + m["grpc.code"].(string)
		for key, value := range m {
			if text, ok := value.(string); ok && strings.Contains(text, "hunter2") {
				t.Errorf("log field %s holds a secret", key)
			}
		}
	}
	want := map[string]string{"grows": "info rpc done OK", "is full": "warn rpc failed ResourceExhausted"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log lines (-want +got):\n%s", diff)
	}
	if n := p.logs.FilterField(zap.String("pillar_csi.volume.id", "gone")).Len(); n != 0 {
		t.Errorf("a call that changed nothing left %d lines, want 0", n)
	}
}

func TestRun_Lock(t *testing.T) {
	tests := map[string]struct {
		wait     bool
		deadline time.Duration // of the second call
		release  bool          // the first call ends while the second waits
		want     codes.Code
	}{
		"busy is aborted at once":      {deadline: time.Minute, want: Aborted},
		"waiting gets its turn":        {wait: true, deadline: time.Minute, release: true, want: codes.OK},
		"waiting ends at the deadline": {wait: true, deadline: 50 * time.Millisecond, want: codes.DeadlineExceeded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			hold := make(chan struct{})
			c := &controller{started: make(chan struct{}, 2), remove: func(context.Context) error { <-hold; return nil }}
			client := csi.NewControllerClient(serve(t, Config{Wait: test.wait}, c).conn)
			first := make(chan error, 1)
			go func() {
				_, err := client.DeleteVolume(context.Background(), &csi.DeleteVolumeRequest{VolumeId: "v"})
				first <- err
			}()
			<-c.started
			if test.release {
				time.AfterFunc(20*time.Millisecond, func() { close(hold) })
			}
			_, err := client.DeleteVolume(withDeadline(t, test.deadline), &csi.DeleteVolumeRequest{VolumeId: "v"})
			if status.Code(err) != test.want {
				t.Errorf("DeleteVolume(v) while another runs = %v, want %v", err, test.want)
			}
			if !test.release {
				close(hold)
			}
			if err := <-first; err != nil {
				t.Errorf("first DeleteVolume(v) = %v, want nil", err)
			}
		})
	}
}

// TestRun_LockOfCreate holds that a create waits for a call on the volume it would make,
// and for no other.
func TestRun_LockOfCreate(t *testing.T) {
	hold := make(chan struct{})
	c := &controller{
		started: make(chan struct{}, 1),
		create:  func(context.Context) error { return nil },
		remove:  func(context.Context) error { <-hold; return nil },
	}
	client := csi.NewControllerClient(serve(t, Config{Volume: path.Base}, c).conn)
	done := make(chan error, 1)
	go func() {
		_, err := client.DeleteVolume(context.Background(), &csi.DeleteVolumeRequest{VolumeId: "agent/v"})
		done <- err
	}()
	<-c.started
	for name, want := range map[string]codes.Code{"v": codes.Aborted, "w": codes.OK} {
		if _, err := client.CreateVolume(t.Context(), &csi.CreateVolumeRequest{Name: name}); status.Code(err) != want {
			t.Errorf("CreateVolume(%s) while agent/v is deleted = %v, want %v", name, err, want)
		}
	}
	close(hold)
	if err := <-done; err != nil {
		t.Errorf("DeleteVolume = %v", err)
	}
}

func TestLocks_Busy(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	l := newLocks(false, func() time.Time { return now })
	release, err := l.acquire(context.Background(), "v")
	if err != nil {
		t.Fatalf("acquire(v) = %v", err)
	}
	now = now.Add(1500 * time.Millisecond)
	_, err = l.acquire(context.Background(), "v")
	if want := "operation on v is already running for 1.5s"; err == nil || err.Error() != want || CodeOf(err) != Aborted {
		t.Errorf("acquire(v) = %v (%v), want %q (Aborted)", err, CodeOf(err), want)
	}
	release()
	if _, err := l.acquire(context.Background(), "v"); err != nil {
		t.Errorf("acquire(v) after release = %v, want nil", err)
	}
}

func TestLocks_WaitEndsAborted(t *testing.T) {
	l := newLocks(true, time.Now)
	if _, err := l.acquire(context.Background(), "v"); err != nil {
		t.Fatalf("acquire(v) = %v", err)
	}
	if _, err := l.acquire(withDeadline(t, 10*time.Millisecond), "v"); CodeOf(err) != Aborted {
		t.Errorf("acquire(v) at its deadline = %v, want Aborted", err)
	}
}

func TestRun_Socket(t *testing.T) {
	t.Run("replaces a stale socket and lets a running call finish", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "csi.sock")
		stale, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		stale.(*net.UnixListener).SetUnlinkOnClose(false)
		stale.Close()
		hold := make(chan struct{})
		c := &controller{started: make(chan struct{}, 1), remove: func(context.Context) error { <-hold; return nil }}
		p := serve(t, Config{Address: "unix://" + path}, c)
		call := make(chan error, 1)
		go func() {
			_, err := csi.NewControllerClient(p.conn).DeleteVolume(context.Background(), &csi.DeleteVolumeRequest{VolumeId: "v"})
			call <- err
		}()
		<-c.started
		time.AfterFunc(20*time.Millisecond, func() { close(hold) })
		if err := p.stop(); err != nil {
			t.Errorf("Run() = %v, want nil after its context ended", err)
		}
		if err := <-call; err != nil {
			t.Errorf("call in flight = %v, want nil", err)
		}
	})
	t.Run("never removes a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "csi.sock")
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		err := Run(context.Background(), Config{Address: path}, zap.NewNop(), func(grpc.ServiceRegistrar) {})
		if err == nil {
			t.Error("Run() on a regular file = nil, want an error")
		}
		if _, err := os.Stat(path); err != nil {
			t.Errorf("the file is gone: %v", err)
		}
	})
}
