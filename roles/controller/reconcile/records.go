package reconcile

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/chap"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage"
)

// changed makes a volume due whose export is to be another than before.
func (r *exports) changed(_ context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
	before, now := e.ObjectOld.(*v1alpha1.PillarVolumeState), e.ObjectNew.(*v1alpha1.PillarVolumeState)
	if before.DeletionTimestamp.IsZero() && !now.DeletionTimestamp.IsZero() && !now.Status.Deleting {
		r.tell(now, corev1.EventTypeWarning, eventByHand, "Delete", "somebody deleted this record, which cannot be taken back: the volume goes on "+
			"serving and the record goes with its PersistentVolume; leave the finalizer, without it two machines may write the volume")
	}
	if !ledger.HasExport(now) || sameExport(before, now) {
		return
	}
	agent := now.Spec.AgentRef
	r.mu.Lock()
	r.backlog(agent).schedule(now.Name, time.Now().Add(settle))
	r.mu.Unlock()
	queue.AddAfter(ctrl.Request{NamespacedName: types.NamespacedName{Name: agent}}, settle)
}

func sameExport(a, b *v1alpha1.PillarVolumeState) bool {
	x, _ := ledger.Desired(a)
	y, _ := ledger.Desired(b)
	return ledger.HasExport(a) == ledger.HasExport(b) && equality.Semantic.DeepEqual(x, y)
}

// exported answers the agent's records with an export to keep, as the cache has them. They
// are the cache's own: nobody may change them.
func (r *exports) exported(ctx context.Context, agent string) ([]*v1alpha1.PillarVolumeState, error) {
	list := &v1alpha1.PillarVolumeStateList{}
	if err := r.cached.List(ctx, list, client.MatchingFields{byAgent: agent}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list volume states of %s: %w", agent, err)
	}
	var volumes []*v1alpha1.PillarVolumeState
	for i := range list.Items {
		if ledger.HasExport(&list.Items[i]) {
			volumes = append(volumes, &list.Items[i])
		}
	}
	return volumes, nil
}

// read answers the records of what is due: from the cache, or from the API server where
// the cache was found to be late. One that cannot be read is left to the next pass.
func (r *exports) read(ctx context.Context, agent string, names []string) []*v1alpha1.PillarVolumeState {
	var volumes []*v1alpha1.PillarVolumeState
	for _, name := range names {
		r.mu.Lock()
		fresh := r.backlog(agent).retries[name].fresh
		r.mu.Unlock()
		v, err := &v1alpha1.PillarVolumeState{}, error(nil)
		if fresh {
			v, err = r.ledger.Read(ctx, name)
		} else {
			err = r.cached.Get(ctx, types.NamespacedName{Name: name}, v, client.UnsafeDisableDeepCopy)
		}
		switch {
		case err == nil:
			volumes = append(volumes, v)
		case !apierrors.IsNotFound(err) && !errors.Is(err, storage.ErrNotFound):
			log.FromContext(ctx).Error(err, "read record to send", telemetry.KeyPVName, name)
		}
	}
	return volumes
}

// wanted is what an agent is asked for, and what became of it.
type wanted struct {
	items    []agentrpc.Item
	sent     map[string]*v1alpha1.PillarVolumeState // by agent volume ID, no outcome yet
	outcomes []outcome
}

// desired sorts records into what is sent and what is not. What is to be kept without
// being sent has its outcome already.
func (r *exports) desired(ctx context.Context, volumes []*v1alpha1.PillarVolumeState) *wanted {
	w := &wanted{sent: map[string]*v1alpha1.PillarVolumeState{}}
	secrets := map[string]string{}
	for _, v := range volumes {
		if !ledger.HasExport(v) {
			continue
		}
		item, ok := ledger.Desired(v)
		if !ok {
			w.outcomes = append(w.outcomes, specMissing(v))
		} else if why := r.withheld(ctx, v, secrets); why != "" {
			w.outcomes = append(w.outcomes, outcome{v, v1alpha1.ReasonReconcileFailed, why})
		} else {
			w.items = append(w.items, item)
			w.sent[v.Spec.AgentVolumeID] = v
		}
	}
	return w
}

// withheld tells why a volume that needs credentials is not sent: never without them
// (block.md B-134). secrets remembers what was read for this request.
func (r *exports) withheld(ctx context.Context, v *v1alpha1.PillarVolumeState, secrets map[string]string) string {
	if v.Spec.Resolved == nil {
		return ""
	}
	method, name := chap.Of(v.Spec.Resolved.Protocol)
	if method == v1alpha1.AuthNone {
		return ""
	}
	key := method + " " + name
	if _, read := secrets[key]; !read {
		secrets[key] = "this version cannot send CHAP credentials to an agent yet"
		if _, err := chap.Read(ctx, r.direct, r.namespace, name, method); err != nil {
			secrets[key] = err.Error()
		}
	}
	return secrets[key]
}

// failed gives everything that was sent the outcome of the whole request.
func (w *wanted) failed(err error) {
	reason := reasonOf(err)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		reason = v1alpha1.ReasonAgentUnavailable
	}
	for _, v := range w.sent {
		w.outcomes = append(w.outcomes, outcome{v, reason, err.Error()})
	}
}

// results takes the agent's answer and names what keeps a gate closed. A rejected token
// does not: the record moved on, and the next request has the new one (block.md B-275).
func (w *wanted) results(results []agentrpc.ItemResult) (failed string) {
	var all []string
	for _, res := range results {
		v := w.sent[res.Volume]
		if v == nil {
			all = append(all, fmt.Sprintf("the agent answered for volume %s, which was not sent", res.Volume))
			continue
		}
		delete(w.sent, res.Volume)
		if res.Err == nil {
			w.outcomes = append(w.outcomes, outcome{v, v1alpha1.ReasonReconciled, "the agent confirmed export and initiators"})
			continue
		}
		w.outcomes = append(w.outcomes, outcome{v, reasonOf(res.Err), res.Err.Error()})
		if !errors.Is(res.Err, fencing.ErrStale) {
			all = append(all, fmt.Sprintf("volume %s: %s", v.Name, res.Err))
		}
	}
	for _, v := range w.sent {
		w.outcomes = append(w.outcomes, outcome{v, v1alpha1.ReasonReconcileFailed, "the agent's answer lacks this volume"})
		all = append(all, fmt.Sprintf("volume %s: the agent's answer lacks it", v.Name))
	}
	return some(all)
}

// some joins the first of many failures.
func some(failures []string) string {
	const most = 3
	if n := len(failures); n > most {
		failures = append(failures[:most:most], fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(failures, "; ")
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, fencing.ErrStale):
		return v1alpha1.ReasonStaleGeneration
	case errors.Is(err, agentrpc.ErrUnavailable):
		return v1alpha1.ReasonAgentUnavailable
	}
	return v1alpha1.ReasonReconcileFailed
}

// outcome is what a record's ExportReconciled is to say.
type outcome struct {
	volume          *v1alpha1.PillarVolumeState // as it was sent; never changed
	reason, message string
}

func specMissing(v *v1alpha1.PillarVolumeState) outcome {
	return outcome{v, v1alpha1.ReasonExportSpecMissing,
		"status.exportSpec is missing, so nothing is sent and an export that exists stays as it is; " +
			"write bindAddress, port and aclEnabled into it once, as docs/troubleshooting.md shows"}
}

func (o outcome) status() metav1.ConditionStatus {
	if o.reason == v1alpha1.ReasonReconciled {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// news is false if the record says the same. How exactly an agent cannot be reached is
// its PillarAgent's to say: it would cost a write per volume and attempt.
func (o outcome) news() bool {
	have := meta.FindStatusCondition(o.volume.Status.Conditions, v1alpha1.ExportReconciled)
	return have == nil || have.Status != o.status() || have.Reason != o.reason ||
		have.Message != clip(o.message) && o.reason != v1alpha1.ReasonAgentUnavailable
}

// write brings outcomes into the records, up to a batch of writes, and answers how many.
// A few at once keep the pace with an API server that is slow.
func (r *exports) write(ctx context.Context, agent string) (wrote int) {
	var group errgroup.Group
	group.SetLimit(8)
	for ; wrote < batch; wrote++ {
		o, ok := r.untold(agent)
		if !ok {
			break
		}
		group.Go(func() error { r.record(ctx, agent, o); return nil })
	}
	group.Wait()
	return wrote
}

// untold answers the next outcome that its record does not say yet.
func (r *exports) untold(agent string) (outcome, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.backlog(agent)
	for len(b.told) > 0 {
		o := b.told[0]
		b.told = b.told[1:]
		if o.news() {
			return o, true
		}
	}
	b.told = nil
	return outcome{}, false
}

// record writes one outcome under the version of the record that was sent. A record that
// changed meanwhile keeps what it says and is sent again. Nothing but the condition is
// touched (block.md B-595).
func (r *exports) record(ctx context.Context, agent string, o outcome) {
	v := o.volume.DeepCopy()
	s := begin(v, &v.Status.Conditions)
	s.set(v1alpha1.ExportReconciled, o.status(), o.reason, o.message)
	changes := s.changes()
	err := r.cached.Status().Patch(ctx, v, locked(s.old))
	switch {
	case err == nil:
		if own(o.reason) {
			log.FromContext(ctx).Error(errors.New(o.message), "export not reconciled", telemetry.KeyPVName, v.Name, "agent", agent, "reason", o.reason)
		}
		if askedAbout(s.before, o.reason) {
			for _, c := range changes {
				r.tell(v, eventType(c), c.Reason, c.Type, c.Message)
			}
		}
	case apierrors.IsNotFound(err):
	default:
		if !apierrors.IsConflict(err) {
			log.FromContext(ctx).Error(err, "record export condition", telemetry.KeyPVName, v.Name)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.backlog(agent).schedule(v.Name, time.Now().Add(settle))
	}
}

// own tells whether a reason is the volume's own trouble; that its agent went is told once, at
// the PillarAgent. A token that was only late is in no record, since its write fails: one that
// is refused although nothing newer was committed means that the API's data is older than the
// agent's, as after a restore from a backup.
func own(reason string) bool {
	switch reason {
	case v1alpha1.ReasonReconcileFailed, v1alpha1.ReasonExportSpecMissing, v1alpha1.ReasonStaleGeneration:
		return true
	}
	return false
}

// askedAbout tells whether a change is the volume's own trouble, or the end of it.
func askedAbout(before []metav1.Condition, reason string) bool {
	have := meta.FindStatusCondition(before, v1alpha1.ExportReconciled)
	return own(reason) || have != nil && own(have.Reason)
}
