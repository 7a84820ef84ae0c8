package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
)

// witness sees every version of every record of a bench, every request that reached its
// agent and every change the agent made. verdict holds all of it against what block.md 11
// says must never happen. A request seen may be lost, and delivered again at any time.
type witness struct {
	b *bench

	mu       sync.Mutex
	versions map[string][]*v1alpha1.PillarVolumeState // by UID, in the order they were written
	lives    []string                                 // UIDs in the order they began
	removed  map[string]bool                          // by UID
	requests []request
	lose     func(rpc string) bool // not nil: the answer is Unavailable, the request still on its way
	pause    time.Duration         // random pause before a request, up to this
	changes  []change              // under the agent's mutex, which every change holds
}

// request is one change the controller asked the agent for; of a reconcile, one item.
type request struct {
	rpc     string
	volume  string // agent volume ID
	tok     fencing.Token
	msg     any
	deliver func() // the whole call, again
}

// change is what a volume is at the agent after a request that was admitted.
type change struct {
	volume   string
	tok      fencing.Token
	bytes    int64
	admitted []string
}

// watch has a witness see all from now on; call verdict when all is over.
func (b *bench) watch() *witness {
	b.t.Helper()
	w := &witness{b: b, versions: map[string][]*v1alpha1.PillarVolumeState{}, removed: map[string]bool{}}
	scheme, err := Scheme()
	if err != nil {
		b.t.Fatal(err)
	}
	api, err := client.NewWithWatch(b.cfg, client.Options{Scheme: scheme})
	if err != nil {
		b.t.Fatal(err)
	}
	list := &v1alpha1.PillarVolumeStateList{}
	if err := api.List(b.t.Context(), list); err != nil {
		b.t.Fatal(err)
	}
	events, err := api.Watch(b.t.Context(), list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(events.Stop)
	go func() {
		for e := range events.ResultChan() {
			if v, ok := e.Object.(*v1alpha1.PillarVolumeState); ok && v.Spec.AgentRef == b.name {
				w.version(v, e.Type == "DELETED")
			}
		}
	}()
	b.agent.set(func(a *fakeAgent) {
		a.see = w.see
		a.effect = func(volume string, tok fencing.Token) {
			w.changes = append(w.changes, change{volume, tok, a.volumes[volume], slices.Clone(a.exports[volume].Initiators)})
		}
	})
	return w
}

func (w *witness) version(v *v1alpha1.PillarVolumeState, removed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.versions[string(v.UID)] == nil {
		w.lives = append(w.lives, string(v.UID))
	}
	w.versions[string(v.UID)] = append(w.versions[string(v.UID)], v)
	w.removed[string(v.UID)] = removed
}

// see is the agent's interceptor.
func (w *witness) see(ctx context.Context, msg any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	rpc := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	deliver := func() { handler(context.Background(), msg) }
	w.mu.Lock()
	switch r := msg.(type) {
	case *agentpb.ReconcileStateRequest:
		for _, item := range r.Items {
			w.requests = append(w.requests, request{rpc, item.VolumeId, agentrpc.Token(item.Token), item, deliver})
		}
	case fenced:
		w.requests = append(w.requests, request{rpc, r.GetVolumeId(), agentrpc.Token(r.GetToken()), msg, deliver})
	}
	lost := w.lose != nil && w.lose(rpc)
	pause := w.pause
	w.mu.Unlock()
	w.b.chance.pause(pause)
	if lost {
		return nil, agentrpc.Status(fmt.Errorf("the request is on its way: %w", agentrpc.ErrUnavailable))
	}
	return handler(ctx, msg)
}

// fenced is what every request for one change has.
type fenced interface {
	GetVolumeId() string
	GetToken() *agentpb.FenceToken
}

// losing has the requests of these RPCs arrive only when redelivered; none ends it.
func (w *witness) losing(rpcs ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = func(rpc string) bool { return slices.Contains(rpcs, rpc) }
}

// redeliver lets every request ever seen arrive once more, in a random order. Nothing may
// come of it: each was carried out or outrun before (N-3, N-4, N-5).
func (w *witness) redeliver(when string) {
	w.b.t.Helper()
	w.mu.Lock()
	old := slices.Clone(w.requests)
	w.mu.Unlock()
	w.b.chance.shuffle(len(old), func(i, j int) { old[i], old[j] = old[j], old[i] })
	before := w.b.agent.picture()
	for _, r := range old {
		r.deliver()
	}
	if diff := cmp.Diff(before, w.b.agent.picture()); diff != "" {
		w.b.t.Errorf("%s: requests of the past changed the agent (-before +after):\n%s", when, diff)
	}
}

// picture is what the agent has: sizes, and who is admitted where.
func (a *fakeAgent) picture() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := map[string]string{}
	for volume, bytes := range a.volumes {
		p[volume] = fmt.Sprint(bytes)
	}
	for volume, e := range a.exports {
		p[volume] += fmt.Sprintf(" exported to %v", slices.Sorted(slices.Values(e.Initiators)))
	}
	return p
}

// verdict fails the test for everything that must never happen and did.
func (w *witness) verdict() {
	w.b.t.Helper()
	w.settle()
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, versions := range w.versions {
		for i, v := range versions[1:] {
			if err := lawful(versions[i], v); err != nil {
				w.b.t.Errorf("record %s from generation %d to %d: %v", v.Name, versions[i].Status.PublicationGeneration, v.Status.PublicationGeneration, err)
			}
		}
		if last := versions[len(versions)-1]; w.removed[uid] && !last.Status.Deleting {
			w.b.t.Errorf("record %s was removed without deleting", last.Name)
		}
	}
	asked := map[string]string{}
	for _, r := range w.requests {
		if err := w.judge(r, asked); err != nil {
			w.b.t.Errorf("%s %s g%d: %v", r.rpc, r.volume, r.tok.Generation, err)
		}
	}
	w.b.agent.set(func(*fakeAgent) {
		if err := w.judgeChanges(); err != nil {
			w.b.t.Error(err)
		}
	})
}

// settle waits until every version written so far was seen: events come in the order of
// the writes, so one more record that was seen is behind them all.
func (w *witness) settle() {
	w.b.t.Helper()
	last := &v1alpha1.PillarVolumeState{
		ObjectMeta: metav1.ObjectMeta{GenerateName: w.b.name + "-last-"},
		Spec: v1alpha1.PillarVolumeStateSpec{
			VolumeID: w.b.name + "/nvmeof-tcp/lvm-lv/vg0/last", AgentVolumeID: "vg0/last",
			AgentRef: w.b.name, BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp", CapacityBytes: 1,
		},
	}
	w.b.create(last)
	for range 1000 {
		w.mu.Lock()
		_, seen := w.versions[string(last.UID)]
		w.mu.Unlock()
		if seen {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.b.t.Fatalf("record %s was never seen", last.Name)
}

// of answers the record as the token's write left it.
func (w *witness) of(tok fencing.Token) (*v1alpha1.PillarVolumeState, error) {
	for _, v := range w.versions[tok.UID] {
		if v.Status.PublicationGeneration == tok.Generation {
			return v, nil
		}
	}
	return nil, fmt.Errorf("token %s was never committed", tok)
}

// judge holds one request against the record it claims to come from (B-52, B-53), and
// against the first of its kind with the same token (N-39).
func (w *witness) judge(r request, asked map[string]string) error {
	v, err := w.of(r.tok)
	if err != nil {
		return err
	}
	if err := matches(r.msg, v); err != nil {
		return err
	}
	expand, ok := r.msg.(*agentpb.ExpandVolumeRequest)
	if !ok {
		return nil // all else is a function of the record
	}
	content := fmt.Sprint(expand.SizeBytes)
	if first, again := asked[r.tok.String()]; again && first != content {
		return fmt.Errorf("N-39: asked for %s and %s with one token", first, content)
	}
	asked[r.tok.String()] = content
	return nil
}

// matches says what a request asks for that the record does not say.
func matches(msg any, v *v1alpha1.PillarVolumeState) error {
	admitted := func(initiator string) bool {
		item, _ := ledger.Desired(v)
		return slices.Contains(item.Export.Initiators, initiator)
	}
	s, err := v.Status, errors.New("the record does not say so")
	switch r := msg.(type) {
	case *agentpb.CreateVolumeRequest:
		if s.Phase == v1alpha1.PhaseProvisioning && !s.Deleting && r.SizeBytes == v.Spec.CapacityBytes {
			return nil
		}
	case *agentpb.ExpandVolumeRequest:
		if s.Phase == v1alpha1.PhaseReady && !s.Deleting {
			return nil
		}
	case *agentpb.ExportVolumeRequest:
		return sameExport(r.VolumeId, r.Export, v)
	case *agentpb.ReconcileItem:
		return sameExport(r.VolumeId, r.Export, v)
	case *agentpb.AllowInitiatorRequest:
		if admitted(r.InitiatorId) && !s.Deleting && r.AclEnabled == s.ExportSpec.ACLEnabled {
			return nil
		}
	case *agentpb.DenyInitiatorRequest:
		if !admitted(r.InitiatorId) {
			return nil
		}
	case *agentpb.UnexportVolumeRequest, *agentpb.DeleteVolumeRequest:
		if s.Deleting && len(s.PublishedNodes) == 0 { // N-15
			return nil
		}
	}
	return fmt.Errorf("%w: %+v", err, s)
}

func sameExport(volume string, spec *agentpb.ExportSpec, v *v1alpha1.PillarVolumeState) error {
	want, ok := ledger.Desired(v)
	got, err := agentrpc.Export(volume, spec)
	got.DevicePath = "" // the agent's own, given as a check only
	if diff := cmp.Diff(want.Export, got); err != nil || !ok || !ledger.HasExport(v) || diff != "" {
		return fmt.Errorf("export that the record does not say (%v, -want +got):\n%s", err, diff)
	}
	return nil
}

// judgeChanges: nobody is admitted without a record, or beside a single node (N-1), and no
// volume shrinks within its life (N-46).
func (w *witness) judgeChanges() error {
	var errs []error
	size := map[string]int64{}
	for _, c := range w.changes {
		v, err := w.of(c.tok)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, id := range c.admitted {
			i := slices.IndexFunc(v.Status.PublishedNodes, func(p v1alpha1.PublishedNode) bool { return p.InitiatorID == id })
			if i < 0 || len(c.admitted) > 1 && singleNode(v.Status.PublishedNodes[i].AccessMode) {
				errs = append(errs, fmt.Errorf("N-1: %s admits %v at g%d, the record has %+v", c.volume, c.admitted, c.tok.Generation, v.Status.PublishedNodes))
			}
		}
		if was, known := size[c.tok.UID]; known && was == 0 && c.bytes > 0 {
			errs = append(errs, fmt.Errorf("N-22: %s was made twice in one life", c.volume))
		}
		if c.bytes != 0 && c.bytes < size[c.tok.UID] {
			errs = append(errs, fmt.Errorf("N-46: %s shrank from %d to %d bytes", c.volume, size[c.tok.UID], c.bytes))
		}
		size[c.tok.UID] = c.bytes
	}
	return errors.Join(errs...)
}

// lawful says what the step from one version of a record to the next breaks.
func lawful(before, after *v1alpha1.PillarVolumeState) error {
	b, a := before.Status, after.Status
	step := a.PublicationGeneration - b.PublicationGeneration
	moved := !equality.Semantic.DeepEqual(b.PublishedNodes, a.PublishedNodes) || !equality.Semantic.DeepEqual(b.ExportSpec, a.ExportSpec) ||
		b.Deleting != a.Deleting || b.LocalAttachNode != a.LocalAttachNode
	switch {
	case step < 0 || step > 1:
		return fmt.Errorf("B-52: the generation moved by %d", step)
	case b.Deleting && !a.Deleting:
		return errors.New("B-55: deleting was taken back")
	case a.Deleting && len(a.PublishedNodes) > 0:
		return fmt.Errorf("N-15: deleting while published to %+v", a.PublishedNodes)
	case moved && step == 0:
		return errors.New("B-52: the export moved without a generation")
	case !equality.Semantic.DeepEqual(before.Spec, after.Spec):
		return errors.New("N-22: the spec was written twice")
	}
	order := []v1alpha1.Phase{v1alpha1.PhaseProvisioning, v1alpha1.PhaseCreatePartial, v1alpha1.PhaseReady}
	from, to := slices.Index(order, ledger.Phase(before)), slices.Index(order, ledger.Phase(after))
	if to != from && to != from+1 {
		return fmt.Errorf("B-58: phase %s became %s", ledger.Phase(before), ledger.Phase(after))
	}
	return lawfulNodes(b.PublishedNodes, a.PublishedNodes)
}

func lawfulNodes(before, after []v1alpha1.PublishedNode) error {
	for _, p := range before {
		i := slices.IndexFunc(after, func(q v1alpha1.PublishedNode) bool { return q.NodeID == p.NodeID })
		if i < 0 && !p.Revoking {
			return fmt.Errorf("N-41: node %s was forgotten without a revoke", p.NodeID)
		}
		if i >= 0 && p.Revoking && !after[i].Revoking {
			return fmt.Errorf("N-5: the revoke of node %s was taken back", p.NodeID)
		}
	}
	for _, p := range after {
		if len(after) > 1 && singleNode(p.AccessMode) {
			return fmt.Errorf("N-1: node %s has the volume as %s beside others: %+v", p.NodeID, p.AccessMode, after)
		}
	}
	return nil
}

// count answers how often the RPC was asked for.
func (w *witness) count(rpc string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.requests {
		if r.rpc == rpc {
			n++
		}
	}
	return n
}

// TestLawful is the witness's own test: it must see what it is there for.
func TestLawful(t *testing.T) {
	published := func(revoking bool) func(*v1alpha1.PillarVolumeStateStatus) {
		return func(s *v1alpha1.PillarVolumeStateStatus) {
			s.PublishedNodes = []v1alpha1.PublishedNode{{NodeID: "w1", AccessMode: writer.String(), Revoking: revoking}}
		}
	}
	tests := map[string]struct {
		before, after func(*v1alpha1.PillarVolumeStateStatus)
		steps         int64 // of the generation
		want          string
	}{
		"nothing":                     {nil, nil, 0, ""},
		"a publication":               {nil, published(false), 1, ""},
		"a revoke":                    {published(false), published(true), 1, ""},
		"a revoked one is forgotten":  {published(true), nil, 1, ""},
		"one that was not revoked":    {published(false), nil, 1, "N-41"},
		"a revoke is taken back":      {published(true), published(false), 1, "N-5"},
		"the generation stays behind": {nil, published(false), 0, "B-52"},
		"the generation jumps":        {nil, nil, 2, "B-52"},
		"the generation falls":        {nil, nil, -1, "B-52"},
		"deleting while published":    {published(true), func(s *v1alpha1.PillarVolumeStateStatus) { published(true)(s); s.Deleting = true }, 1, "N-15"},
		"deleting is taken back":      {func(s *v1alpha1.PillarVolumeStateStatus) { s.Deleting = true }, nil, 0, "B-55"},
		"back to an earlier phase":    {func(s *v1alpha1.PillarVolumeStateStatus) { s.Phase = v1alpha1.PhaseReady }, nil, 0, "B-58"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			before, after := &v1alpha1.PillarVolumeState{}, &v1alpha1.PillarVolumeState{}
			before.Status.PublicationGeneration, after.Status.PublicationGeneration = 3, 3+tt.steps
			if tt.before != nil {
				tt.before(&before.Status)
			}
			if tt.after != nil {
				tt.after(&after.Status)
			}
			if err := lawful(before, after); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("lawful = %v, want %q", err, tt.want)
			}
		})
	}
}
