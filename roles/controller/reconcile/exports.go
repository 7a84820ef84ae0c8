package reconcile

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
)

// Pacing of what is sent to one agent and written about its volumes.
const (
	// A CSI call changes a record three or four times within a second: one request then.
	settle = time.Second
	// A request carries at most so many volumes, so that one which changed waits for no
	// more than these; and at most so many records are written each second, so that an agent
	// with thousands of volumes can come and go without drowning the API server.
	batch = 100
	// Until a volume, or a complete request, that failed is sent again (block.md U-48).
	leastWait, mostWait = time.Second, 30 * time.Second
)

// exports keeps the exports of every agent as the records say, one agent at a time so that
// one that hangs holds up no other:
//
//	gate closed   every export in one complete request, read from the API server
//	gate open     what changed after a second, what failed after a growing pause, and
//	              everything each period, in batches read from the cache
//	unreachable   the records say so
//
// That a cache may be late is harmless: token and content come from one read, and the
// agent rejects what is superseded (block.md B-53).
type exports struct {
	kube
	ledger *ledger.Ledger
	period time.Duration
	kick   func(agent string) // has the agent's health looked at
	wake   chan event.GenericEvent

	mu       sync.Mutex
	backlogs map[string]*backlog // by agent
}

func newExports(k kube, kick func(agent string)) *exports {
	return &exports{
		kube: k, ledger: ledger.New(k.direct), period: poll, kick: kick,
		wake: make(chan event.GenericEvent, 64), backlogs: map[string]*backlog{},
	}
}

// byAgent is the cache's index of records.
const byAgent = "spec.agentRef"

func (r *exports) setup(mgr ctrl.Manager) error {
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.PillarVolumeState{}, byAgent, func(obj client.Object) []string {
		return []string{obj.(*v1alpha1.PillarVolumeState).Spec.AgentRef}
	})
	if err != nil {
		return fmt.Errorf("index volume states: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("exports").
		Watches(&v1alpha1.PillarVolumeState{}, handler.Funcs{UpdateFunc: r.changed}).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: atOnce}).
		Complete(r)
}

// standing is how an agent was found to be.
type standing struct {
	client *agentrpc.Client // nil: it cannot be asked
	why    string           // ... because
	gated  bool
	asked  time.Time
	object string // PillarAgent as far as its exports depend on it
}

// learn takes what a check of the agent found, and answers why its last complete request
// opened no gate; empty: it did, or there was none.
func (r *exports) learn(ctx context.Context, agent string, s standing) (failed string) {
	r.mu.Lock()
	failed = r.backlog(agent).found(s)
	r.mu.Unlock()
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: agent}}
	select {
	case r.wake <- event.GenericEvent{Object: pa}:
	case <-ctx.Done():
	}
	return failed
}

// reconnected has a new process of the agent restored without the pause that the failures
// of the one before earned.
func (r *exports) reconnected(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backlog(agent).attempt = attempt{}
}

// Reconcile does the next piece of work for one agent.
func (r *exports) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	r.mu.Lock()
	s := r.backlog(req.Name).standing
	r.mu.Unlock()
	var err error
	switch {
	case s.asked.IsZero():
		return ctrl.Result{}, nil // Agents has not looked yet
	case s.client == nil:
		return r.unreachable(ctx, req.Name, s.why)
	case s.gated:
		r.restore(ctx, req.Name, s.client)
	default:
		err = r.send(ctx, req.Name, s.client)
	}
	wrote := r.write(ctx, req.Name)
	r.mu.Lock()
	defer r.mu.Unlock()
	return ctrl.Result{RequeueAfter: r.backlog(req.Name).next(time.Now(), r.period, wrote)}, err
}

// unreachable has the records of an agent say that it cannot be asked. Those that a write
// missed are found again a moment later.
func (r *exports) unreachable(ctx context.Context, agent, why string) (ctrl.Result, error) {
	volumes, err := r.exported(ctx, agent)
	if err != nil {
		return ctrl.Result{}, err
	}
	var all []outcome
	for _, v := range volumes {
		o := outcome{v, v1alpha1.ReasonAgentUnavailable, why}
		if _, ok := ledger.Desired(v); !ok {
			o = specMissing(v)
		}
		if o.news() && len(all) < batch {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		return ctrl.Result{}, nil
	}
	r.mu.Lock()
	r.backlog(agent).told = all
	r.mu.Unlock()
	r.write(ctx, agent)
	return ctrl.Result{RequeueAfter: settle}, nil
}

// restore sends the complete request, unless the last one failed a moment ago. The records
// are read from the API server, after the gate was seen closed (block.md B-273).
func (r *exports) restore(ctx context.Context, agent string, client *agentrpc.Client) {
	r.mu.Lock()
	early := time.Now().Before(r.backlog(agent).attempt.next)
	r.mu.Unlock()
	if early {
		return
	}
	w, failed := r.complete(ctx, agent, client)
	health, err := client.Health(ctx)
	open := err == nil && !health.Gated // also after its hold time, without what failed (B-275)
	switch {
	case open || failed != "":
	case err != nil:
		failed = "the agent applied the export list; whether it serves is not known: " + err.Error()
	default:
		failed = "the agent applied the export list, but waits on"
	}
	r.mu.Lock()
	r.backlog(agent).restored(time.Now(), open, failed, w.outcomes)
	r.mu.Unlock()
	r.kick(agent)
}

func (r *exports) complete(ctx context.Context, agent string, client *agentrpc.Client) (w *wanted, failed string) {
	volumes, err := r.ledger.Of(ctx, agent)
	if err != nil {
		return &wanted{}, err.Error()
	}
	w = r.desired(ctx, volumes)
	sent := len(w.items)
	results, err := client.Reconcile(ctx, true, w.items)
	if err != nil {
		unsent(ctx, agent, sent, err)
		w.failed(err)
		return w, fmt.Sprintf("send %d exports: %s", sent, err)
	}
	return w, w.results(results)
}

// unsent logs a request that came to nothing; that an item failed is record's to say.
func unsent(ctx context.Context, agent string, volumes int, err error) {
	log.FromContext(ctx).Error(err, "exports not sent", "agent", agent, "volumes", volumes)
}

// send sends what is due. An agent that turns out to be gated, or to have a port that waits for
// the complete request, is restored next (B-279).
func (r *exports) send(ctx context.Context, agent string, client *agentrpc.Client) error {
	if err := r.pass(ctx, agent); err != nil {
		return err
	}
	r.mu.Lock()
	due := r.backlog(agent).take(time.Now())
	r.mu.Unlock()
	w, pending := r.desired(ctx, r.read(ctx, agent, due)), false
	if len(w.items) > 0 {
		results, err := client.Reconcile(ctx, false, w.items)
		if agents.Gated(err) {
			r.mu.Lock()
			r.backlog(agent).gated = true
			r.mu.Unlock()
			return nil
		}
		if err != nil {
			unsent(ctx, agent, len(w.items), err)
			w.failed(err)
			r.kick(agent)
		} else {
			w.results(results)
		}
		pending = slices.ContainsFunc(results, func(res agentrpc.ItemResult) bool { return agents.Gated(res.Err) })
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog(agent)
	b.settled(time.Now(), w.outcomes)
	b.gated = b.gated || pending
	return nil
}

// pass makes every export of the agent due if a period has gone by.
func (r *exports) pass(ctx context.Context, agent string) error {
	now := time.Now()
	r.mu.Lock()
	early := now.Before(r.backlog(agent).passed.Add(r.period))
	r.mu.Unlock()
	if early {
		return nil
	}
	volumes, err := r.exported(ctx, agent)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog(agent)
	b.passed = now
	for _, v := range volumes {
		b.schedule(v.Name, now)
	}
	return nil
}

// backlog answers the agent's, made on first use; r.mu is held.
func (r *exports) backlog(agent string) *backlog {
	b := r.backlogs[agent]
	if b == nil {
		b = newBacklog()
		r.backlogs[agent] = b
	}
	return b
}
