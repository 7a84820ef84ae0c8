package controller

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// completes answers how many complete requests the agent got since the last look.
func (b *bench) completes() int {
	n := 0
	for _, call := range b.agent.take() {
		if strings.HasPrefix(call, "ReconcileState complete=true") {
			n++
		}
	}
	return n
}

// TestRestore_fails: a volume that cannot be restored is named at the agent and at its
// record, and the complete request is repeated with growing pauses, whatever calls and
// changes find the gate closed meanwhile (B-275, B-278, U-48).
func TestRestore_fails(t *testing.T) {
	b := newBench(t)
	id := b.made("pvc-f")
	all := b.exported(5)
	bad := all[3]
	b.agent.set(func(a *fakeAgent) {
		a.gated = true
		a.fail[bad.Spec.AgentVolumeID] = fmt.Errorf("device is missing: %w", storage.ErrNotFound)
	})
	b.run(b.cfg, never)
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	b.eventually(pa, func() string {
		for _, c := range pa.Status.Conditions {
			if c.Reason == "ExportRestoreFailed" && c.Status == "False" && strings.Contains(c.Message, "volume "+bad.Name+": device is missing") {
				return ""
			}
		}
		return fmt.Sprintf("conditions are %+v", pa.Status.Conditions)
	})
	b.wantReconciled(bad, "ReconcileFailed", "device is missing")
	b.wantReconciled(all[0], "Reconciled", "")
	b.completes()
	for start := time.Now(); time.Since(start) < 4*time.Second; time.Sleep(200 * time.Millisecond) {
		wantCode(t, "publish", b.publish(id, "w1", writer), csiserve.Unavailable, "export restore pending")
	}
	if n := b.completes(); n < 1 || n > 3 {
		t.Errorf("%d complete requests within 4 s of failures, want growing pauses", n)
	}
	b.agent.set(func(a *fakeAgent) { delete(a.fail, bad.Spec.AgentVolumeID) })
	b.serving()
	b.wantReconciled(bad, "Reconciled", "")
	wantCode(t, "unpublish", b.unpublish(id, ""), 0, "")
	wantCode(t, "delete", b.delete(id), 0, "")
}

// TestRestore_atOnce: a new process of the agent is noticed between two polls, by whatever
// call finds its gate closed (B-279). What is not listed is not touched (N-44), and a host
// whose revoke is under way does not come back (N-5, B-489).
func TestRestore_atOnce(t *testing.T) {
	b := newBench(t)
	all := b.exported(2)
	b.change(all[1], func(s *v1alpha1.PillarVolumeStateStatus) { s.PublishedNodes[0].Revoking = true })
	id := b.made("pvc-a")
	unlisted := transport.Export{Volume: "vg0/unlisted"}
	b.run(b.cfg, never)
	for _, v := range all {
		b.wantReconciled(v, "Reconciled", "")
	}
	restart := func() {
		b.agent.set(func(a *fakeAgent) {
			a.gated = true
			a.exports = map[string]transport.Export{unlisted.Volume: unlisted}
			a.calls = nil
		})
	}
	for name, find := range map[string]func(){
		"by a CSI call": func() {
			wantCode(t, "publish", b.publish(id, "w1", writer), csiserve.Unavailable, "export restore pending")
		},
		"by a resync": func() {
			b.change(all[0], func(s *v1alpha1.PillarVolumeStateStatus) { s.PublicationGeneration++ })
		},
	} {
		restart()
		find()
		for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if _, exports, _ := b.agent.have(); len(exports) == 4 {
				break
			}
			if time.Since(start) > 5*time.Second {
				t.Fatalf("a gate found closed %s is still closed after 5 s", name)
			}
		}
	}
	b.agent.set(func(a *fakeAgent) {
		if e := a.exports[all[1].Spec.AgentVolumeID]; len(e.Initiators) != 0 || !e.ACL {
			t.Errorf("restored export = %+v, want the revoked host left out", e)
		}
	})
	wantCode(t, "unpublish", b.unpublish(id, ""), 0, "")
	wantCode(t, "delete", b.delete(id), 0, "")
}

// TestRestore_shutPort: an agent that serves, but for a port that it could not open, says so for
// single volumes alone. The complete request follows, which opens that port for all (B-275).
func TestRestore_shutPort(t *testing.T) {
	b := newBench(t)
	all := b.exported(2)
	b.run(b.cfg, never)
	for _, v := range all {
		b.wantReconciled(v, "Reconciled", "")
	}
	b.agent.set(func(a *fakeAgent) { a.shut, a.calls = true, nil })
	b.change(all[0], func(s *v1alpha1.PillarVolumeStateStatus) { s.PublicationGeneration++ })
	for start := time.Now(); b.completes() == 0; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 5*time.Second {
			t.Fatal("no complete request within 5 s of a volume that waits for one")
		}
	}
	b.wantReconciled(all[0], "Reconciled", "")
}

// TestRestore_replaced: another machine takes over the agent's address, with nothing of the
// first one's state.
func TestRestore_replaced(t *testing.T) {
	b := newBench(t)
	v := b.exported(1)[0]
	b.run(b.cfg, never)
	b.wantReconciled(v, "Reconciled", "")
	other := startFakeAgent(t)
	other.stop()
	other.set(func(a *fakeAgent) { a.gated = true })
	b.agent.stop()
	b.wantReconciled(v, "AgentUnavailable", "not connected")
	other.address = b.agent.address
	other.serve(t)
	b.wantReconciled(v, "Reconciled", "")
	wantCalls(t, other, "ReconcileState complete=true items=1")
	b.serving()
}

// TestRestore_twice: two controllers that both believe to lead restore one agent, and
// agree on every record.
func TestRestore_twice(t *testing.T) {
	b := newBench(t)
	all := b.exported(10)
	w := b.watch()
	b.agent.set(func(a *fakeAgent) { a.gated = true })
	b.run(b.cfg, never)
	b.runAs(b.cfg, Config{Namespace: "kube-system", period: never}) // another lease
	for _, v := range all {
		b.wantReconciled(v, "Reconciled", "")
	}
	b.serving()
	if _, exports, _ := b.agent.have(); len(exports) != len(all) {
		t.Errorf("exports = %v, want those of all volumes", exports)
	}
	w.verdict()
}

// TestRestore_hangs: an agent that does not answer its complete request says so, and holds
// up no other.
func TestRestore_hangs(t *testing.T) {
	b, other := newBench(t), newBench(t)
	b.exported(1)
	v := other.exported(1)[0]
	for _, o := range []*bench{b, other} {
		o.agent.set(func(a *fakeAgent) { a.gated = true })
	}
	hangs := make(chan struct{}, 100)
	b.agent.set(func(a *fakeAgent) {
		a.see = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if _, ok := req.(*agentpb.ReconcileStateRequest); ok {
				hangs <- struct{}{}
				<-ctx.Done()
			}
			return handler(ctx, req)
		}
	})
	b.run(b.cfg, never)
	<-hangs
	other.wantReconciled(v, "Reconciled", "")
	other.serving()
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	b.eventually(pa, has(&pa.Status.Conditions, "ExportsReady", "False", "ExportRestorePending"))
}
