package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/storage"
)

// traffic is what the API server did for a controller: "<verb> <path>?<query>".
type traffic struct {
	mu   sync.Mutex
	seen []string
}

func (tr *traffic) wrap(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := next.RoundTrip(req)
			if err == nil && resp.StatusCode < http.StatusBadRequest {
				tr.mu.Lock()
				defer tr.mu.Unlock()
				tr.seen = append(tr.seen, req.Method+" "+req.URL.Path+"?"+req.URL.RawQuery)
			}
			return resp, err
		})
	})
	return cfg
}

// take answers the requests since the last take that contain one of the fragments.
func (tr *traffic) take(fragments ...string) []string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	seen := tr.seen
	tr.seen = nil
	return slices.DeleteFunc(seen, func(request string) bool {
		return !slices.ContainsFunc(fragments, func(f string) bool { return strings.Contains(request, f) })
	})
}

// never is a period no test lives to see: what is sent then was not sent by a pass.
const never = time.Hour

// exported makes n Ready volumes as if they had been there for long: records alone.
func (b *bench) exported(n int) []*v1alpha1.PillarVolumeState {
	b.t.Helper()
	volumes := make([]*v1alpha1.PillarVolumeState, n)
	var group errgroup.Group
	group.SetLimit(16)
	for i := range volumes {
		v := b.record(fmt.Sprintf("v%04d", i))
		volumes[i] = v
		group.Go(func() error {
			status := v.Status
			if err := b.api.Create(b.t.Context(), v); err != nil {
				return err
			}
			v.Status = status
			return b.api.Status().Update(b.t.Context(), v)
		})
	}
	b.t.Cleanup(func() {
		b.api.DeleteAllOf(context.Background(), &v1alpha1.PillarVolumeState{}, client.MatchingLabels{"bench": b.name})
	})
	if err := group.Wait(); err != nil {
		b.t.Fatal(err)
	}
	return volumes
}

// record is a Ready volume, published to one node.
func (b *bench) record(name string) *v1alpha1.PillarVolumeState {
	name = b.name + name
	v := &v1alpha1.PillarVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"bench": b.name}},
		Spec: v1alpha1.PillarVolumeStateSpec{
			VolumeID: b.name + "/nvmeof-tcp/lvm-lv/vg0/" + name, AgentVolumeID: "vg0/" + name,
			AgentRef: b.name, BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp", CapacityBytes: 1 << 30,
		},
	}
	v.Status = v1alpha1.PillarVolumeStateStatus{
		Phase: v1alpha1.PhaseReady, PublicationGeneration: 3,
		ExportSpec:     &v1alpha1.ExportSpec{BindAddress: "127.0.0.1", Port: 4420, ACLEnabled: true},
		PublishedNodes: []v1alpha1.PublishedNode{{NodeID: "w1", InitiatorID: "nqn.2014-08.org.nvmexpress:uuid:w1", AccessMode: "SINGLE_NODE_WRITER"}},
	}
	return v
}

// change writes a record's status as another process would.
func (b *bench) change(v *v1alpha1.PillarVolumeState, how func(*v1alpha1.PillarVolumeStateStatus)) {
	b.t.Helper()
	_, err := ledger.New(b.api).Update(b.t.Context(), v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		how(&now.Status)
		return true, nil
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) wantReconciled(v *v1alpha1.PillarVolumeState, reason, fragment string) {
	b.t.Helper()
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonReconciled {
		status = metav1.ConditionTrue
	}
	b.eventually(v, func() string {
		if missing := has(&v.Status.Conditions, v1alpha1.ExportReconciled, status, reason)(); missing != "" {
			return missing
		}
		if c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ExportReconciled); !strings.Contains(c.Message, fragment) {
			return fmt.Sprintf("message %q, want %q in it", c.Message, fragment)
		}
		return ""
	})
}

func (b *bench) serving() *v1alpha1.PillarAgent {
	b.t.Helper()
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	b.eventually(pa, has(&pa.Status.Conditions, "ExportsReady", "True", "ExportsServing"))
	return pa
}

// TestResync_steady: with nothing changing nothing is written and nothing is listed, and
// the agent is asked a few times, however many volumes it has.
func TestResync_steady(t *testing.T) {
	b := newBench(t)
	const volumes, period = 120, time.Second
	all := b.exported(volumes)
	tr := &traffic{}
	b.run(tr.wrap(b.cfg), period)
	for _, v := range all {
		b.wantReconciled(v, "Reconciled", "")
	}
	const periods = 4
	each := volumes/100 + 1
	for window := 1; ; window++ { // the first may see the end of what other tests left
		b.agent.take()
		tr.take()
		time.Sleep(periods * period)
		asked, calls := tr.take(b.name, "pillarvolumestates"), b.agent.take()
		if len(asked) == 0 && len(calls) >= (periods-1)*each && len(calls) <= (periods+1)*each {
			return
		}
		if window == 3 {
			t.Fatalf("%d requests to the API server, want none: %v; %d calls to the agent in %d periods, want %d in each: %v",
				len(asked), asked[:min(3, len(asked))], len(calls), periods, each, calls)
		}
	}
}

// TestResync_change: a record that changes several times within a second is sent once,
// alone, and everything else is not.
func TestResync_change(t *testing.T) {
	b := newBench(t)
	all := b.exported(20)
	b.run(b.cfg, never)
	v := all[7]
	b.wantReconciled(v, "Reconciled", "")
	b.agent.take()
	start := time.Now()
	for range 4 {
		b.change(v, func(s *v1alpha1.PillarVolumeStateStatus) { s.PublicationGeneration++ })
	}
	b.change(v, func(s *v1alpha1.PillarVolumeStateStatus) {
		s.PublishedNodes[0].Revoking = true
		s.PublicationGeneration++
	})
	most := 1 + int(time.Since(start)/time.Second) // on a slow machine
	time.Sleep(2500 * time.Millisecond)
	calls := b.agent.take()
	if len(calls) < 1 || len(calls) > most {
		t.Errorf("%d calls for one second's changes, want %d: %v", len(calls), most, calls)
	}
	for _, call := range calls {
		if call != "ReconcileState complete=false items=1" {
			t.Errorf("agent call %s, want the changed volume alone", call)
		}
	}
	b.agent.mu.Lock()
	e := b.agent.exports[v.Spec.AgentVolumeID]
	b.agent.mu.Unlock()
	if len(e.Initiators) != 0 || !e.ACL {
		t.Errorf("export = %+v, want nobody admitted", e)
	}
}

// TestResync_fails: an error of one volume is its own; it is sent again with growing
// pauses until it works (B-133).
func TestResync_fails(t *testing.T) {
	b := newBench(t)
	all := b.exported(3)
	bad, good := all[1], all[2]
	b.agent.set(func(a *fakeAgent) { a.fail[bad.Spec.AgentVolumeID] = fmt.Errorf("device: %w", storage.ErrNotFound) })
	b.run(b.cfg, never)
	b.wantReconciled(bad, "ReconcileFailed", "device")
	b.wantReconciled(good, "Reconciled", "")
	b.agent.take()
	time.Sleep(4 * time.Second)
	if calls := b.agent.take(); len(calls) < 1 || len(calls) > 3 {
		t.Errorf("calls within 4 s of a failure: %v, want growing pauses", calls)
	}
	b.agent.set(func(a *fakeAgent) { delete(a.fail, bad.Spec.AgentVolumeID) })
	b.wantReconciled(bad, "Reconciled", "")
	b.wantEvent(bad.Name, "ReconcileFailed", "Reconciled")
}

// wantEvent waits for events about an object: they are written in the background.
func (b *bench) wantEvent(name string, reasons ...string) {
	b.t.Helper()
	var got []string
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(50 * time.Millisecond) {
		list := &corev1.EventList{}
		if err := b.api.List(b.t.Context(), list, client.MatchingFields{"involvedObject.name": name}); err != nil {
			b.t.Fatal(err)
		}
		got = nil
		for _, e := range list.Items {
			got = append(got, e.Reason)
		}
		if !slices.ContainsFunc(reasons, func(reason string) bool { return !slices.Contains(got, reason) }) {
			return
		}
	}
	b.t.Errorf("events of %s are %v, want %v", name, got, reasons)
}

// TestResync_stale: a rejected token is reported, and the record is read afresh (B-133).
func TestResync_stale(t *testing.T) {
	b := newBench(t)
	v := b.exported(1)[0]
	ahead := fencing.Token{UID: string(v.UID), Generation: 5}
	if err := b.agent.fenced(t.Context(), v.Spec.AgentVolumeID, ahead, fencing.Op{Class: fencing.Grant}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	b.run(b.cfg, never)
	b.wantReconciled(v, "StaleGeneration", "")
	b.change(v, func(s *v1alpha1.PillarVolumeStateStatus) { s.PublicationGeneration = 6 })
	b.wantReconciled(v, "Reconciled", "")
}

// TestResync_skips: what is deleted, not created yet or waits for its recovery is not sent
// (B-130).
func TestResync_skips(t *testing.T) {
	b := newBench(t)
	all := b.exported(4)
	b.change(all[0], func(s *v1alpha1.PillarVolumeStateStatus) { s.Deleting = true })
	b.change(all[1], func(s *v1alpha1.PillarVolumeStateStatus) { s.Phase = v1alpha1.PhaseRecoveryPending })
	b.change(all[2], func(s *v1alpha1.PillarVolumeStateStatus) { s.Phase = v1alpha1.PhaseProvisioning })
	b.change(all[3], func(s *v1alpha1.PillarVolumeStateStatus) { s.Phase = v1alpha1.PhaseCreatePartial })
	b.run(b.cfg, never)
	b.wantReconciled(all[3], "Reconciled", "")
	if _, exports, _ := b.agent.have(); len(exports) != 1 {
		t.Errorf("exports = %v, want the partial one alone", exports)
	}
}

// TestResync_specMissing walks block.md section 10: without an export record nothing is
// sent and nothing guessed (N-42), what exists stays (N-44), and the operator's one patch
// heals the volume under its generation.
func TestResync_specMissing(t *testing.T) {
	b := newBench(t)
	v := b.exported(1)[0]
	b.change(v, func(s *v1alpha1.PillarVolumeStateStatus) { s.ExportSpec = nil })
	b.agent.set(func(a *fakeAgent) { a.gated = true })
	b.run(b.cfg, time.Second)
	b.wantReconciled(v, "ExportSpecMissing", "bindAddress, port and aclEnabled")
	b.serving()
	for _, call := range b.agent.take() {
		if !strings.HasSuffix(call, "complete=true items=0") {
			t.Errorf("agent call %s for a volume without export record", call)
		}
	}
	if v.Status.ExportSpec != nil {
		t.Errorf("exportSpec = %+v, want none guessed", v.Status.ExportSpec)
	}
	patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/resourceVersion","value":%q},
		{"op":"add","path":"/status/exportSpec","value":{"bindAddress":"127.0.0.1","port":0,"aclEnabled":true}}]`, v.UID, v.ResourceVersion)
	if err := b.api.Status().Patch(t.Context(), v, client.RawPatch(types.JSONPatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	b.wantReconciled(v, "Reconciled", "")
	b.agent.mu.Lock()
	e := b.agent.exports[v.Spec.AgentVolumeID]
	b.agent.mu.Unlock()
	if v.Status.PublicationGeneration != 3 || len(e.Initiators) != 1 {
		t.Errorf("healed at generation %d with %v admitted, want generation 3 and the published node", v.Status.PublicationGeneration, e.Initiators)
	}
}

// TestResync_chap: a volume is never sent without the credentials it needs (B-134).
func TestResync_chap(t *testing.T) {
	b := newBench(t)
	v := b.record("chap")
	v.Spec.ProtocolType = "iscsi"
	v.Spec.Resolved = &v1alpha1.Resolved{
		Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0"}},
		Protocol: v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{Port: 3260, ACL: true, Auth: &v1alpha1.ISCSIAuth{
			Method: v1alpha1.AuthCHAP, SecretRef: &v1alpha1.SecretRef{Name: b.name + "chap"},
		}}},
	}
	status := v.Status
	b.create(v)
	v.Status = status
	if err := b.api.Status().Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	b.run(b.cfg, time.Second)
	b.wantReconciled(v, "ReconcileFailed", `Secret "default/`+b.name+`chap" does not exist`)
	b.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: b.name + "chap"},
		StringData: map[string]string{"username": "u", "password": "marker-of-a-password"},
	})
	b.wantReconciled(v, "ReconcileFailed", "cannot send CHAP credentials")
	if strings.Contains(fmt.Sprint(v.Status), "marker") {
		t.Error("a password reached a condition")
	}
	if calls := b.agent.take(); len(calls) != 0 {
		t.Errorf("agent calls = %v, want none", calls)
	}
}

// TestResync_late: a resync from the time of a local attach does not disable the export
// that the next node uses (N-40).
func TestResync_late(t *testing.T) {
	b := newBench(t)
	id := b.made("pvc-l")
	name := b.name + "pvc-l"
	agent, err := agentrpc.Dial(b.agent.address, agentrpc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	wantCode(t, "publish", b.publish(id, "w1", writer), 0, "")
	local := b.state(name)
	local.Status.LocalAttachNode = "storage"
	item, ok := ledger.Desired(local)
	if !ok || !item.Export.Disabled {
		t.Errorf("export while local = %+v, want it disabled (B-132)", item)
	}
	wantCode(t, "unpublish", b.unpublish(id, b.name+"w1"), 0, "")
	wantCode(t, "publish", b.publish(id, "w2", writer), 0, "")
	results, err := agent.Reconcile(t.Context(), false, []agentrpc.Item{item})
	if err != nil || !errors.Is(results[0].Err, fencing.ErrStale) {
		t.Errorf("a late resync = %v, %v, want a superseded token", results, err)
	}
	if now := b.agent.exports["vg0/"+name]; len(now.Initiators) != 1 || now.Disabled {
		t.Errorf("export = %+v, want it as the last publish left it", now)
	}
	wantCode(t, "unpublish", b.unpublish(id, ""), 0, "")
	wantCode(t, "delete", b.delete(id), 0, "")
}

// TestResync_oneContent: with resyncs between all steps of volumes that come, move and go,
// two different exports never carry one token (N-39).
func TestResync_oneContent(t *testing.T) {
	b := newBench(t)
	w := b.watch()
	b.run(b.cfg, 50*time.Millisecond)
	b.serving()
	var group errgroup.Group
	for n := range 2 {
		group.Go(func() error {
			id := b.made(fmt.Sprintf("pvc-%d", n))
			for _, node := range []string{"w1", "w2", "w1"} {
				if err := errors.Join(b.publish(id, node, writer), b.unpublish(id, b.name+node)); err != nil {
					return err
				}
			}
			return b.delete(id)
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	w.verdict()
}

// TestResync_lost: an agent that is lost costs one write for each of its volumes, and so
// does its return, at no more than 100 a second.
func TestResync_lost(t *testing.T) {
	b := newBench(t)
	const volumes = 120
	all := b.exported(volumes)
	tr := &traffic{}
	b.run(tr.wrap(b.cfg), never)
	for _, v := range all {
		b.wantReconciled(v, "Reconciled", "")
	}
	for _, step := range []struct {
		reason string
		happen func()
	}{{"AgentUnavailable", b.agent.stop}, {"Reconciled", func() { b.agent.serve(t) }}} {
		tr.take()
		start := time.Now()
		step.happen()
		for _, v := range all {
			b.wantReconciled(v, step.reason, "")
		}
		if took := time.Since(start); took < time.Second {
			t.Errorf("%s: %d records were written within %s, want 100 in a second", step.reason, volumes, took)
		}
		writes := map[string]int{}
		for _, request := range tr.take("PATCH /apis/pillar-csi.bhyoo.com/v1alpha1/pillarvolumestates/" + b.name) {
			writes[request]++
			if writes[request] > 1 {
				t.Errorf("%s: %d times %s, want one", step.reason, writes[request], request)
			}
		}
		if len(writes) != volumes {
			t.Errorf("%s: %d records written, want %d", step.reason, len(writes), volumes)
		}
	}
}
