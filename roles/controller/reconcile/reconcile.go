// Package reconcile keeps the objects users write in step with the world, one reconciler
// per kind:
//
//	agent.go     address, node label, health, capabilities; exports.go opens its gate
//	store.go     is the pool there, does the layout agree, how much space is left
//	protocol.go  who uses it
//	class.go     the generated StorageClass
//
// Changes arrive by watches, that an agent came or went by its connection. What has no
// watch, an agent's health, is polled. Whoever is
// being deleted waits for its dependents; those are read from the API server, not from a
// cache, because a stale read could drop a guard too early.
package reconcile

import (
	"context"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/agents"
)

// Pacing (api.md 2).
const (
	notReady = 15 * time.Second // re-check while not Ready
	blocked  = 10 * time.Second // re-check while a deletion is blocked
)

// Setup adds every reconciler to the manager. direct reads the API server itself.
func Setup(mgr ctrl.Manager, direct client.Client, pool *agents.Pool) (*Agents, error) {
	cached := mgr.GetClient()
	a := NewAgents(cached, direct, pool)
	for _, setup := range []func(ctrl.Manager) error{
		a.setup,
		(&stores{cached, direct}).setup,
		(&protocols{cached, direct}).setup,
		(&classes{cached, direct}).setup,
	} {
		if err := setup(mgr); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// status is the part all four kinds share.
type status struct {
	conditions *[]metav1.Condition
	generation int64
}

func (s status) set(kind string, value metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(s.conditions, metav1.Condition{
		Type: kind, Status: value, Reason: reason, Message: clip(message), ObservedGeneration: s.generation,
	})
}

// clip cuts a message at what the API server takes, 32768 characters: a longer one, as of
// a deletion that many volumes block, would cost the whole status.
func clip(message string) string {
	const limit, more = 32768, " ..."
	if len(message) <= limit {
		return message
	}
	return strings.ToValidUTF8(message[:limit-len(more)], "") + more
}

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
	s.yes(v1alpha1.Ready, v1alpha1.ReasonAllConditionsMet, "")
	return true
}

// deletionBlocked says who still needs the object.
func (s status) deletionBlocked(dependents string) {
	s.no(v1alpha1.Ready, v1alpha1.ReasonDeletionBlocked, "Deletion blocked: "+dependents)
}

func isTrue(conditions []metav1.Condition, kind string) bool {
	return meta.IsStatusConditionTrue(conditions, kind)
}

// writeStatus patches the status if it changed; old is the object as it was read.
func writeStatus[T client.Object](ctx context.Context, c client.Client, obj, old T) error {
	if equality.Semantic.DeepEqual(obj, old) {
		return nil
	}
	return client.IgnoreNotFound(c.Status().Patch(ctx, obj, client.MergeFrom(old)))
}

// protect adds the finalizer; it does nothing where it stands already.
func protect[T client.Object](ctx context.Context, c client.Client, obj T, finalizer string) error {
	old := obj.DeepCopyObject().(T)
	if !controllerutil.AddFinalizer(obj, finalizer) {
		return nil
	}
	return c.Patch(ctx, obj, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}))
}

// release removes the finalizer: nobody needs the object any more.
func release[T client.Object](ctx context.Context, c client.Client, obj T, finalizer string) error {
	old := obj.DeepCopyObject().(T)
	if !controllerutil.RemoveFinalizer(obj, finalizer) {
		return nil
	}
	return client.IgnoreNotFound(c.Patch(ctx, obj, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})))
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
