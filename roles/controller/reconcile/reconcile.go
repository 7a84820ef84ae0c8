// Package reconcile keeps the objects users write in step with the world, one reconciler
// per kind:
//
//	agent.go     address, node label, health, capabilities
//	moved.go     volumes whose hosts dial an address the agent had before
//	exports.go   every volume's export: what changed, everything each 30 s, a closed gate
//	store.go     is the pool there, does the layout agree, how much space is left
//	protocol.go  who uses it, is its CHAP Secret usable
//	class.go     the generated StorageClass
//	initiators.go  warns about nodes that share a host NQN or an IQN
//	reaper.go    ends volumes whose claim went away before they were made
//
// Changes arrive by watches, that an agent came or went by its connection. What has no
// watch, an agent's health and a Secret, is polled. Whoever is being deleted waits for its
// dependents; those are read from the API server, not from a cache, because a stale read
// could drop a guard too early.
//
// What a reconciler found it writes as conditions, in one patch and only if something
// changed; each change a user would ask about is also told as an event (kube.finish).
package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// Pacing (api.md 2).
const (
	notReady = 15 * time.Second       // re-check while not Ready
	blocked  = 10 * time.Second       // re-check while a deletion is blocked
	late     = 200 * time.Millisecond // until the cache shows what was written last
)

// kube is what every reconciler works with.
type kube struct {
	cached    client.Client // reads the informers' cache
	direct    client.Client // reads the API server itself
	events    events.EventRecorder
	namespace string // pillar's own
}

// Config of the reconcilers.
type Config struct {
	Namespace string        // where pillar is installed
	Period    time.Duration // between two passes over all exports; 0: 30 s
}

// Setup adds every reconciler to the manager. direct reads the API server itself.
func Setup(mgr ctrl.Manager, direct client.Client, pool *agents.Pool, cfg Config) (*Agents, error) {
	k := kube{mgr.GetClient(), direct, mgr.GetEventRecorder("pillar-csi"), cfg.Namespace}
	a := newAgents(k, pool)
	a.exports.period = cmp.Or(cfg.Period, poll)
	for _, setup := range []func(ctrl.Manager) error{
		a.setup,
		a.exports.setup,
		(&stores{k}).setup,
		(&protocols{k}).setup,
		(&classes{k}).setup,
		(&initiators{k}).setup,
	} {
		if err := setup(mgr); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// status is the part all four kinds share: an object's conditions, and how they and the
// object were before its reconciler changed them.
type status struct {
	conditions *[]metav1.Condition
	before     []metav1.Condition
	obj, old   client.Object
	notices    *[]notice // told once the status is written
}

// notice is an event that is no condition's.
type notice struct{ kind, reason, action, note string }

// begin starts a status; conditions are obj's own.
func begin(obj client.Object, conditions *[]metav1.Condition) status {
	return status{conditions, slices.Clone(*conditions), obj, obj.DeepCopyObject().(client.Object), &[]notice{}}
}

func (s status) set(kind string, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(s.conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: clip(message), ObservedGeneration: s.obj.GetGeneration(),
	})
	// Set twice, a condition that ends as it was has not moved.
	if old := meta.FindStatusCondition(s.before, kind); old != nil && old.Status == value {
		meta.FindStatusCondition(*s.conditions, kind).LastTransitionTime = old.LastTransitionTime
	}
}

// clip cuts a condition's message at what the API server takes: a longer one, as of a
// deletion that many volumes block, would cost the whole status.
func clip(message string) string { return settings.Clip(message, 32768) }

func (s status) yes(kind, reason, message string) { s.set(kind, metav1.ConditionTrue, reason, message) }
func (s status) no(kind, reason, message string)  { s.set(kind, metav1.ConditionFalse, reason, message) }
func (s status) unknown(kind, reason, message string) {
	s.set(kind, metav1.ConditionUnknown, reason, message)
}

// ready derives Ready from the conditions named, in order: the first that is not met
// gives reason and message.
func (s status) ready(kinds ...string) bool {
	for _, kind := range kinds {
		c := meta.FindStatusCondition(*s.conditions, kind)
		if c == nil {
			s.no(v1alpha1.Ready, v1alpha1.ReasonConditionsNotMet, kind+" is not known yet")
			return false
		}
		if c.Status != metav1.ConditionTrue {
			s.no(v1alpha1.Ready, c.Reason, kind+": "+c.Message)
			return false
		}
	}
	s.yes(v1alpha1.Ready, v1alpha1.ReasonAllConditionsMet, "all conditions are met")
	return true
}

// stood tells whether the condition was true of the spec as it is now, before this
// reconcile looked.
func (s status) stood(kind string) bool {
	c := meta.FindStatusCondition(s.before, kind)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.obj.GetGeneration()
}

// deletionBlocked says who still needs the object.
func (s status) deletionBlocked(dependents string) {
	s.no(v1alpha1.Ready, v1alpha1.ReasonDeletionBlocked, "Deletion blocked: "+dependents+"; delete these first")
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}

// finish writes what changed, tells about it, and answers when to look again; 0 is never.
// Nothing is written where nothing changed. That the cache showed an old object is no
// error: it is looked at again, so that no old finding replaces a newer one.
func (k kube) finish(ctx context.Context, s status, next time.Duration) (ctrl.Result, error) {
	result := ctrl.Result{RequeueAfter: next}
	if equality.Semantic.DeepEqual(s.obj, s.old) {
		return result, nil
	}
	changes := s.changes()
	err := k.cached.Status().Patch(ctx, s.obj, locked(s.old))
	switch {
	case apierrors.IsConflict(err):
		return ctrl.Result{RequeueAfter: late}, nil
	case err != nil:
		return result, client.IgnoreNotFound(err)
	}
	for _, c := range changes {
		k.tell(s.obj, eventType(c), c.Reason, c.Type, c.Message)
	}
	for _, n := range *s.notices {
		k.tell(s.obj, n.kind, n.reason, n.action, n.note)
	}
	return result, nil
}

// locked is a patch from old that fails if anybody wrote in between.
func locked(old client.Object) client.Patch {
	return client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
}

// guard keeps the finalizer on an object, and takes it off when the object is being
// deleted and nothing depends on it: gone then. Else it answers what holds it back.
func (k kube) guard(ctx context.Context, obj client.Object, finalizer string, dependents func() (string, error)) (who string, gone bool, err error) {
	if obj.GetDeletionTimestamp().IsZero() {
		return "", false, k.protect(ctx, obj, finalizer)
	}
	if who, err = dependents(); err != nil || who != "" {
		return who, false, err
	}
	return "", true, k.release(ctx, obj, finalizer)
}

// protect adds the finalizer; it does nothing where it stands already.
func (k kube) protect(ctx context.Context, obj client.Object, finalizer string) error {
	old := obj.DeepCopyObject().(client.Object)
	if !controllerutil.AddFinalizer(obj, finalizer) {
		return nil
	}
	return k.cached.Patch(ctx, obj, locked(old))
}

// release removes the finalizer: nobody needs the object any more.
func (k kube) release(ctx context.Context, obj client.Object, finalizer string) error {
	old := obj.DeepCopyObject().(client.Object)
	if !controllerutil.RemoveFinalizer(obj, finalizer) {
		return nil
	}
	return client.IgnoreNotFound(k.cached.Patch(ctx, obj, locked(old)))
}

// removed lets only deletions through.
var removed = builder.WithPredicates(predicate.Funcs{
	CreateFunc: func(event.CreateEvent) bool { return false },
	UpdateFunc: func(event.UpdateEvent) bool { return false },
})

// matching answers the names of the cached objects of a list's kind that match, for a watch.
func matching[T any](ctx context.Context, k kube, list client.ObjectList, match func(*T) bool) (names []string) {
	if err := k.cached.List(ctx, list); err != nil {
		log.FromContext(ctx).Error(err, "find who is concerned", "kind", fmt.Sprintf("%T", list))
		return nil
	}
	// A list of ours has no items of another kind, and the loop cannot fail.
	_ = meta.EachListItem(list, func(o runtime.Object) error {
		if item, ok := o.(any).(*T); ok && match(item) {
			names = append(names, o.(client.Object).GetName())
		}
		return nil
	})
	return names
}

// mapTo makes a watch handler from a function that names the objects to look at again.
func mapTo(names func(ctx context.Context, obj client.Object) []string) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		var requests []reconcile.Request
		for _, name := range names(ctx, obj) {
			requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
		}
		return requests
	})
}
