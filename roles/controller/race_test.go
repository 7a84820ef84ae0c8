package controller

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// roundTripper is a function that answers requests to the API server.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// rival answers a second controller on the same API server and agent, with connections of
// its own. before runs ahead of each of its requests to the API server; its error is the
// answer, and the request is lost.
func (b *bench) rival(before func(*http.Request) error) *bench {
	b.t.Helper()
	cfg := rest.CopyConfig(b.cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			if err := before(req); err != nil {
				return nil, err
			}
			return next.RoundTrip(req)
		})
	})
	scheme, err := Scheme()
	if err != nil {
		b.t.Fatal(err)
	}
	api, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		b.t.Fatal(err)
	}
	return b.serverOn(api)
}

// serverOn answers the bench with another server, on the client.
func (b *bench) serverOn(api client.Client) *bench {
	pool := &agents.Pool{}
	b.t.Cleanup(func() { pool.Close() })
	other := *b
	other.Server = NewServer(api, "default", pool, func(string) {}, zap.NewNop())
	return &other
}

func (b *bench) expand(id string, bytes int64) error {
	_, err := b.ControllerExpandVolume(b.t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: bytes},
	})
	return err
}

// lived is the volume whose life a test goes through.
type lived struct {
	create   *csi.CreateVolumeRequest
	id, node string
}

func (b *bench) lived(name string) lived {
	return lived{b.createRequest(name), b.name + "/nvmeof-tcp/lvm-lv/vg0/" + b.name + name, b.name + "w1"}
}

// move is one call on a volume.
type move func(b *bench, v lived) error

func create(b *bench, v lived) error {
	_, err := b.CreateVolume(b.t.Context(), v.create)
	return err
}

func remove(b *bench, v lived) error { return b.delete(v.id) }

func publish(node string, mode csi.VolumeCapability_AccessMode_Mode) move {
	return func(b *bench, v lived) error { return b.publish(v.id, node, mode) }
}

func unpublish(node string) move {
	return func(b *bench, v lived) error { return b.unpublish(v.id, b.name+node) }
}

func unpublishAll(b *bench, v lived) error { return b.unpublish(v.id, "") }

func grow(bytes int64) move {
	return func(b *bench, v lived) error { return b.expand(v.id, bytes) }
}

// persist repeats a move as a sidecar does.
func (b *bench) persist(v lived, m move) {
	b.t.Helper()
	var err error
	for range 500 {
		if err = m(b, v); err == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	b.t.Fatalf("volume %s: %v", v.id, err)
}

// race is two calls from two controllers on one volume.
type race struct {
	before []move // the volume's life so far
	one    move
	other  move
	wins   []bool // which of them must succeed; empty: exactly one
}

var races = map[string]race{
	"N-1 publish to two nodes":                {[]move{create}, publish("w1", writer), publish("w2", writer), nil},
	"N-1 unpublish and publish elsewhere":     {[]move{create, publish("w1", writer)}, unpublish("w1"), publish("w2", writer), []bool{true, false}},
	"N-3 unpublish and publish again":         {[]move{create, publish("w1", writer)}, unpublish("w1"), publish("w1", writer), []bool{true, false}},
	"N-3 unpublish one reader of two":         {[]move{create, publish("w1", reader), publish("w2", reader)}, unpublish("w1"), publish("w2", reader), []bool{false, false}},
	"N-4 delete and create again":             {[]move{create}, remove, create, []bool{true, false}},
	"N-15 publish and delete":                 {[]move{create}, publish("w1", writer), remove, nil},
	"N-15 unpublish and delete":               {[]move{create, publish("w1", writer)}, unpublish("w1"), remove, []bool{true, false}},
	"N-22 create twice":                       {nil, create, create, []bool{false, false}},
	"N-41 unpublish twice":                    {[]move{create, publish("w1", writer)}, unpublish("w1"), unpublish("w1"), []bool{false, false}},
	"N-46 expand to two sizes":                {[]move{create}, grow(2 << 30), grow(3 << 30), []bool{false, false}},
	"N-51 delete twice":                       {[]move{create}, remove, remove, []bool{false, false}},
	"N-51 delete and expand":                  {[]move{create}, remove, grow(2 << 30), []bool{true, false}},
	"N-51 delete what is still being created": {nil, create, remove, []bool{false, false}},
}

// rounds is how often each race is run.
const rounds = 4

// TestRace runs every race of two controllers many times with random pauses, while a third
// sends the desired export of whatever it reads. All that was asked arrives a second time
// when it is over.
func TestRace(t *testing.T) {
	for name, r := range races {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			w := b.watch()
			w.pause = 4 * time.Millisecond
			rival := b.rival(func(*http.Request) error { b.chance.pause(4 * time.Millisecond); return nil })
			for n := range rounds {
				v := b.lived("pvc-" + string(rune('a'+n)))
				stop := b.resync(v)
				for _, m := range r.before {
					b.persist(v, m)
				}
				pair := []*bench{b, rival}
				if n%2 == 1 {
					slices.Reverse(pair)
				}
				r.run(t, pair[0], pair[1], v)
				stop()
				w.redeliver("after the race")
				b.persist(v, unpublishAll)
				b.persist(v, remove)
			}
			w.redeliver("at the end")
			if left := b.agent.picture(); len(left) > 0 {
				t.Errorf("left on the agent: %v", left)
			}
			w.verdict()
		})
	}
}

// run has both calls made at once and checks who won.
func (r race) run(t *testing.T, b, rival *bench, v lived) {
	t.Helper()
	var errs [2]error
	var both sync.WaitGroup
	both.Go(func() { errs[0] = r.one(b, v) })
	both.Go(func() { errs[1] = r.other(rival, v) })
	both.Wait()
	won := 0
	for i, err := range errs {
		if err == nil {
			won++
			continue
		}
		if len(r.wins) > 0 && r.wins[i] {
			t.Errorf("call %d = %v, want success", i+1, err)
		}
		if c := csiserve.CodeOf(err); !slices.Contains([]csiserve.Code{csiserve.Aborted, csiserve.FailedPrecondition, csiserve.NotFound, csiserve.OutOfRange}, c) {
			t.Errorf("call %d = %v (%v), want a refusal", i+1, c, err)
		}
	}
	if won != 1 && len(r.wins) == 0 {
		t.Errorf("calls = %v and %v, want exactly one success", errs[0], errs[1])
	}
}

// resync sends the volume's desired export over and over, each a little too late, until
// the answer is called.
func (b *bench) resync(v lived) (stop func()) {
	b.t.Helper()
	agent := b.dialAgent()
	var over atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		for ctx := b.t.Context(); !over.Load(); {
			if item, ok := b.desired(ctx, v); ok {
				b.chance.pause(8 * time.Millisecond)
				agent.Reconcile(ctx, false, []agentrpc.Item{item})
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	return func() { over.Store(true); running.Wait() }
}

// dialAgent answers a connection to the agent beside those of the servers.
func (b *bench) dialAgent() *agentrpc.Client {
	b.t.Helper()
	c, err := agentrpc.Dial(b.agent.address, agentrpc.Config{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { c.Close() })
	return c
}

// desired reads what a resync sends for the volume now.
func (b *bench) desired(ctx context.Context, v lived) (agentrpc.Item, bool) {
	state, err := b.ledger.Read(ctx, v.create.Name)
	if err != nil || !ledger.HasExport(state) {
		return agentrpc.Item{}, false
	}
	return ledger.Desired(state)
}

// TestRace_lateRevoke stops one controller between its revoke and the removal of the
// publication, while another unpublishes, publishes and fails to revoke. What the first
// one knows is of the past: the publication there now was not revoked (N-1, N-41, B-140).
func TestRace_lateRevoke(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watch()
	v := b.lived("pvc")
	b.persist(v, create)
	b.persist(v, publish("w1", writer))
	arrived, gate, writes := make(chan struct{}), make(chan struct{}), 0
	late := b.rival(func(req *http.Request) error {
		if req.Method == http.MethodPut {
			writes++
		}
		if req.Method == http.MethodPut && writes == 2 { // the first marks it revoking
			close(arrived)
			<-gate
		}
		return nil
	})
	done := make(chan error)
	go func() { done <- late.unpublish(v.id, b.name+"w1") }()
	<-arrived
	b.persist(v, unpublish("w1"))
	b.persist(v, publish("w1", writer))
	b.agent.set(func(a *fakeAgent) { a.fail["DenyInitiator"] = errors.New("session is stuck") })
	wantCode(t, "unpublish", b.unpublish(v.id, b.name+"w1"), csiserve.Internal, "session is stuck")
	close(gate)
	wantCode(t, "late unpublish", <-done, csiserve.Aborted, "went on from generation")
	wantCode(t, "publish elsewhere", b.publish(v.id, "w2", writer), csiserve.FailedPrecondition, "is published to another node")
	w.verdict()
}

// TestRace_lateFailure has one controller's export fail after another's made the volume
// Ready: the failure is of the past and the record does not speak of it.
func TestRace_lateFailure(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watch()
	v := b.lived("pvc")
	late := b.rival(func(*http.Request) error {
		if w.count("ExportVolume") == 1 {
			w.losing()
			b.persist(v, create)
		}
		return nil
	})
	w.losing("ExportVolume")
	wantCode(t, "late create", create(late, v), csiserve.Unavailable, "on its way")
	s := b.state(v.create.Name).Status
	if s.Phase != v1alpha1.PhaseReady || s.PartialFailure != nil || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Ready) {
		t.Errorf("record = %+v, want Ready and no failure", s)
	}
	w.verdict()
}

// TestRace_stalledView gives a controller an API server that answers reads from the past:
// it decides nothing (N-1, B-51).
func TestRace_stalledView(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watch()
	v := b.lived("pvc")
	b.persist(v, create)
	stalled := b.serverOn(&past{Client: b.api, was: b.state(v.create.Name)})
	b.persist(v, publish("w1", writer))
	wantCode(t, "publish from a stalled view", stalled.publish(v.id, "w2", writer), csiserve.Aborted, "writes lost")
	wantCode(t, "delete from a stalled view", stalled.delete(v.id), csiserve.Aborted, "writes lost")
	wantCode(t, "unpublish from a stalled view", stalled.unpublish(v.id, b.name+"w1"), 0, "") // no publication that it knows of
	if got, want := b.agent.picture()["vg0/"+v.create.Name], "1073741824 exported to [nqn.2014-08.org.nvmexpress:uuid:"+b.name+"w1]"; got != want {
		t.Errorf("the agent has %q, want %q", got, want)
	}
	w.verdict()
}

// past is a client that reads one volume as it was.
type past struct {
	client.Client
	was *v1alpha1.PillarVolumeState
}

func (p *past) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if v, ok := obj.(*v1alpha1.PillarVolumeState); ok && key.Name == p.was.Name {
		p.was.DeepCopyInto(v)
		return nil
	}
	return p.Client.Get(ctx, key, obj, opts...)
}

// TestRace_delayed holds requests back on their way to the agent and lets them arrive when
// the volume has gone on.
func TestRace_delayed(t *testing.T) {
	tests := map[string]struct {
		lost []string // RPCs of the first move that are still on their way
		path []move   // the first move fails, the rest is what follows
	}{
		"N-3 a grant":           {[]string{"AllowInitiator"}, []move{publish("w1", writer), unpublish("w1"), publish("w2", writer)}},
		"N-3 a revoke":          {[]string{"DenyInitiator"}, []move{unpublish("w1"), unpublish("w1"), publish("w1", writer)}},
		"N-4 a delete":          {[]string{"DeleteVolume"}, []move{remove, remove, create}},
		"N-4 an unexport":       {[]string{"UnexportVolume"}, []move{remove, remove, create, publish("w1", writer)}},
		"N-51 an expand":        {[]string{"ExpandVolume"}, []move{grow(2 << 30), remove, create}},
		"N-46 a smaller expand": {[]string{"ExpandVolume"}, []move{grow(2 << 30), grow(3 << 30)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			w := b.watch()
			v := b.lived("pvc")
			b.persist(v, create)
			if tt.lost[0] == "DenyInitiator" {
				b.persist(v, publish("w1", writer))
			}
			w.losing(tt.lost...)
			wantCode(t, "the move whose request is delayed", tt.path[0](b, v), csiserve.Unavailable, "on its way")
			w.losing()
			for _, m := range tt.path[1:] {
				b.persist(v, m)
			}
			w.redeliver("delayed")
			w.verdict()
		})
	}
}

// TestRace_delayedCreate lets create and export of a first life arrive in the second.
func TestRace_delayedCreate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watch()
	v := b.lived("pvc")
	for _, rpc := range []string{"CreateVolume", "ExportVolume"} {
		w.losing(rpc)
		wantCode(t, "create whose "+rpc+" is delayed", create(b, v), csiserve.Unavailable, "on its way")
		w.losing()
		b.persist(v, remove)
		w.redeliver(rpc + " after the end")
		b.persist(v, create)
		b.persist(v, publish("w1", writer))
		w.redeliver(rpc + " in the next life")
		b.persist(v, unpublish("w1"))
		b.persist(v, remove)
	}
	w.verdict()
}

// TestRace_resyncFromBefore delivers a resync read before the unpublish after it (N-5).
func TestRace_resyncFromBefore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w := b.watch()
	v := b.lived("pvc")
	b.persist(v, create)
	b.persist(v, publish("w1", writer))
	before, ok := b.desired(t.Context(), v)
	if !ok || len(before.Export.Initiators) != 1 {
		t.Fatalf("desired = %+v, want w1 admitted", before)
	}
	b.agent.set(func(a *fakeAgent) { a.fail["DenyInitiator"] = errors.New("session is stuck") })
	wantCode(t, "unpublish", b.unpublish(v.id, b.name+"w1"), csiserve.Internal, "session is stuck")
	if now, ok := b.desired(t.Context(), v); !ok || len(now.Export.Initiators) > 0 {
		t.Errorf("desired while revoking = %+v, want nobody admitted", now)
	}
	b.agent.set(func(a *fakeAgent) { delete(a.fail, "DenyInitiator") })
	b.persist(v, unpublish("w1"))
	results, err := b.dialAgent().Reconcile(t.Context(), false, []agentrpc.Item{before})
	if err != nil || len(results) != 1 {
		t.Fatalf("Reconcile = %v, %v", results, err)
	}
	wantCode(t, "resync from before", results[0].Err, csiserve.FailedPrecondition, "")
	w.redeliver("after the unpublish")
	w.verdict()
}
