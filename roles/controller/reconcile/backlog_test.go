package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

var epoch = time.Unix(1_000_000, 0)

func after(seconds float64) time.Time {
	return epoch.Add(time.Duration(seconds * float64(time.Second)))
}

func named(name string) *v1alpha1.PillarVolumeState {
	return &v1alpha1.PillarVolumeState{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// TestBacklog_take: a volume that changed does not wait behind a pass of thousands.
func TestBacklog_take(t *testing.T) {
	b := newBacklog()
	for i := range 2 * batch {
		b.schedule(fmt.Sprintf("v%03d", i), after(0))
	}
	b.schedule("changed", after(1))
	b.schedule("changed", after(3)) // it is due already
	b.schedule("later", after(9))
	if got := b.take(after(2)); len(got) != batch || got[0] != "changed" || got[1] != "v000" {
		t.Errorf("take = %d volumes, first %v, want %d with the changed one first", len(got), got[:2], batch)
	}
	if got := len(b.take(after(2))) + len(b.take(after(2))); got != batch+1 {
		t.Errorf("then %d volumes, want the other %d", got, batch+1)
	}
	if got := b.take(after(9)); len(got) != 1 || got[0] != "later" {
		t.Errorf("at last %v, want later", got)
	}
}

// TestBacklog_restored: of two complete requests the later one is written, however many
// conditions of the earlier one still wait.
func TestBacklog_restored(t *testing.T) {
	b := newBacklog()
	b.restored(after(0), false, "volume v: gone", []outcome{{named("v"), v1alpha1.ReasonReconcileFailed, "gone"}, {named("w"), v1alpha1.ReasonReconciled, ""}})
	b.restored(after(1), true, "", []outcome{{named("v"), v1alpha1.ReasonReconciled, ""}, {named("w"), v1alpha1.ReasonReconciled, ""}})
	for _, o := range b.told {
		if o.reason != v1alpha1.ReasonReconciled {
			t.Errorf("%s of the first request is still to be written", o.reason)
		}
	}
	b.restored(after(2), false, "read records: timeout", nil)
	if len(b.told) != 2 {
		t.Errorf("%d outcomes after a request that said nothing, want the two before", len(b.told))
	}
}

// TestBacklog_settled: what failed is sent again after 1 s, then ever later, up to 30 s;
// a missing exportSpec waits for a human.
func TestBacklog_settled(t *testing.T) {
	b := newBacklog()
	settled := func(reason string) (wait time.Duration, again bool) {
		b.settled(epoch, []outcome{{named("v"), reason, ""}})
		at, again := b.due["v"]
		delete(b.due, "v")
		return at.Sub(epoch) / time.Second, again
	}
	var waits []time.Duration
	for range 7 {
		wait, _ := settled(v1alpha1.ReasonReconcileFailed)
		waits = append(waits, wait)
	}
	if diff := cmp.Diff([]time.Duration{1, 2, 4, 8, 16, 30, 30}, waits); diff != "" {
		t.Errorf("waits in seconds (-want +got):\n%s", diff)
	}
	for _, reason := range []string{v1alpha1.ReasonReconciled, v1alpha1.ReasonExportSpecMissing} {
		if _, again := settled(reason); again {
			t.Errorf("%s is sent again", reason)
		}
	}
	if wait, _ := settled(v1alpha1.ReasonStaleGeneration); wait != 1 || !b.retries["v"].fresh {
		t.Errorf("a rejected token waits %d s (fresh read: %t), want 1 and a fresh read", wait, b.retries["v"].fresh)
	}
}

// TestBacklog_found tells when everything is sent, and when a complete request goes out.
func TestBacklog_found(t *testing.T) {
	client := &agentrpc.Client{}
	open := func(at time.Time) standing { return standing{client: client, asked: at, object: "1"} }
	gated := func(at time.Time) standing { return standing{client: client, asked: at, object: "1", gated: true} }
	due := func(b *backlog) bool { return b.passed.IsZero() }
	b := newBacklog()

	b.found(gated(after(1)))
	b.attempted(after(2), false, "no device")
	if failed := b.found(gated(after(3))); failed != "no device" || !b.attempt.next.Equal(after(3)) {
		t.Errorf("after a failure: %q, next at %s, want no device, at %s", failed, b.attempt.next, after(3))
	}
	b.attempted(after(4), true, "")
	if b.found(gated(after(3.5))); b.gated {
		t.Error("an answer from before the gate opened closed it")
	}
	if due(b) {
		t.Error("everything is sent again right after the complete request")
	}
	if b.found(gated(after(5))); !b.gated || !b.attempt.next.IsZero() {
		t.Error("a gate found closed again does not get its complete request at once")
	}
	if b.found(open(after(6))); b.gated || !due(b) {
		t.Error("a gate that opened by itself: not everything is due")
	}
	b.passed = after(7)
	if b.found(open(after(8))); due(b) {
		t.Error("an agent that goes on makes everything due")
	}
	moved := open(after(9))
	moved.object = "2"
	if b.found(moved); !due(b) {
		t.Error("a changed PillarAgent: not everything is due")
	}
	b.passed = after(10)
	b.schedule("v", after(20))
	if b.found(standing{asked: after(11)}); len(b.due) != 0 {
		t.Error("a lost agent has volumes due")
	}
	if b.found(open(after(12))); !due(b) {
		t.Error("an agent that came back: not everything is due")
	}
}

func TestBacklog_next(t *testing.T) {
	const period = 30 * time.Second
	tests := map[string]struct {
		change func(b *backlog)
		wrote  int
		want   time.Duration
	}{
		"nothing but the next pass":     {func(*backlog) {}, 0, 20 * time.Second},
		"a volume sooner":               {func(b *backlog) { b.schedule("v", after(3)) }, 0, 3 * time.Second},
		"a volume by now":               {func(b *backlog) { b.schedule("v", after(-3)) }, 1, time.Millisecond},
		"more to write":                 {func(b *backlog) { b.schedule("v", after(-3)) }, batch, settle},
		"gated, never tried":            {func(b *backlog) { b.gated = true }, 0, time.Millisecond},
		"gated, failed a moment ago":    {func(b *backlog) { b.gated, b.attempt.next = true, after(7) }, 0, 7 * time.Second},
		"gated, a volume's turn or not": {func(b *backlog) { b.gated, b.attempt.next = true, after(7); b.schedule("v", after(3)) }, 0, 7 * time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBacklog()
			b.passed = after(-10)
			test.change(b)
			if got := b.next(epoch, period, test.wrote); got != test.want {
				t.Errorf("next = %s, want %s", got, test.want)
			}
		})
	}
}

// TestOutcome_news: nothing is written where the record says the same already; that an
// agent is away costs one write, however it fails to answer.
func TestOutcome_news(t *testing.T) {
	tests := map[string]struct {
		have metav1.Condition
		o    outcome
		want bool
	}{
		"nothing yet":        {metav1.Condition{}, outcome{reason: "Reconciled"}, true},
		"the same":           {metav1.Condition{Status: "True", Reason: "Reconciled", Message: "m"}, outcome{reason: "Reconciled", message: "m"}, false},
		"another fault":      {metav1.Condition{Status: "False", Reason: "ReconcileFailed", Message: "m"}, outcome{reason: "ReconcileFailed", message: "n"}, true},
		"another reason":     {metav1.Condition{Status: "False", Reason: "ReconcileFailed", Message: "m"}, outcome{reason: "StaleGeneration", message: "m"}, true},
		"away, another text": {metav1.Condition{Status: "False", Reason: "AgentUnavailable", Message: "m"}, outcome{reason: "AgentUnavailable", message: "n"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.o.volume = named("v")
			if test.have.Reason != "" {
				test.have.Type = v1alpha1.ExportReconciled
				test.o.volume.Status.Conditions = []metav1.Condition{test.have}
			}
			if got := test.o.news(); got != test.want {
				t.Errorf("news = %t, want %t", got, test.want)
			}
		})
	}
}
