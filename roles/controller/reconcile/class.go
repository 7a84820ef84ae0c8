package reconcile

import (
	"context"
	"fmt"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// classes reconciles PillarStorageClasses.
type classes struct{ kube }

func (r *classes) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.PillarStorageClass{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&storagev1.StorageClass{}).
		Watches(&v1alpha1.PillarStore{}, mapTo(r.naming(func(c *v1alpha1.PillarStorageClass) string { return c.Spec.StoreRef }))).
		Watches(&v1alpha1.PillarProtocol{}, mapTo(r.naming(func(c *v1alpha1.PillarStorageClass) string { return c.Spec.ProtocolRef }))).
		Watches(&v1alpha1.PillarVolumeState{}, mapTo(r.deleting), removed).
		Complete(r)
}

// naming maps a store or protocol to the classes that name it.
func (r *classes) naming(ref func(*v1alpha1.PillarStorageClass) string) func(context.Context, client.Object) []string {
	return func(ctx context.Context, obj client.Object) []string {
		return r.those(ctx, func(c *v1alpha1.PillarStorageClass) bool { return ref(c) == obj.GetName() })
	}
}

// deleting maps anything that may have blocked a deletion to the classes being deleted.
func (r *classes) deleting(ctx context.Context, _ client.Object) []string {
	return r.those(ctx, func(c *v1alpha1.PillarStorageClass) bool { return !c.DeletionTimestamp.IsZero() })
}

func (r *classes) those(ctx context.Context, match func(*v1alpha1.PillarStorageClass) bool) []string {
	return matching(ctx, r.kube, &v1alpha1.PillarStorageClassList{}, match)
}

// Reconcile checks what the class names and keeps its StorageClass.
func (r *classes) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	psc := &v1alpha1.PillarStorageClass{}
	if err := r.cached.Get(ctx, req.NamespacedName, psc); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	dependents, gone, err := r.guard(ctx, psc, v1alpha1.ClassFinalizer, func() (string, error) { return r.unused(ctx, psc) })
	if err != nil || gone {
		return ctrl.Result{}, err
	}
	s := begin(psc, &psc.Status.Conditions)
	protocol, err := r.references(ctx, psc, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	if dependents != "" { // whoever deletes the class wants no new StorageClass
		s.deletionBlocked(dependents)
		return r.finish(ctx, s, blocked)
	}
	r.generate(ctx, psc, protocol, s)
	if !s.ready(v1alpha1.StoreReady, v1alpha1.ProtocolValid, v1alpha1.Compatible, v1alpha1.StorageClassCreated) {
		return r.finish(ctx, s, notReady)
	}
	return r.finish(ctx, s, 0)
}

// unused deletes the StorageClass once nothing uses the class, and looks again: a claim
// made in between must find its class.
func (r *classes) unused(ctx context.Context, psc *v1alpha1.PillarStorageClass) (dependents string, err error) {
	if dependents, err = classDependents(ctx, r.direct, psc); err != nil || dependents != "" {
		return dependents, err
	}
	if err := r.remove(ctx, psc); err != nil {
		return "", err
	}
	return classDependents(ctx, r.direct, psc)
}

// references sets StoreReady, ProtocolValid and Compatible, and answers the protocol if
// everything fits. The webhook could not check a class that came before what it names.
func (r *classes) references(ctx context.Context, psc *v1alpha1.PillarStorageClass, s status) (*v1alpha1.PillarProtocol, error) {
	store, err := r.store(ctx, psc.Spec.StoreRef, s)
	if err != nil {
		return nil, err
	}
	protocol, err := r.protocol(ctx, psc.Spec.ProtocolRef, s)
	if err != nil {
		return nil, err
	}
	if store == nil || protocol == nil { // cannot be told; the two say which is missing
		meta.RemoveStatusCondition(s.conditions, v1alpha1.Compatible)
		return nil, nil
	}
	if bad := settings.CheckClass(psc.Spec, &store.Spec, &protocol.Spec); len(bad) > 0 {
		s.no(v1alpha1.Compatible, v1alpha1.ReasonIncompatible, bad.Error())
		return nil, nil
	}
	if later := settings.ClassNotYet(psc.Spec, protocol.Spec); len(later) > 0 { // before a claim is made
		s.no(v1alpha1.Compatible, v1alpha1.ReasonIncompatible, strings.Join(later, "; "))
		return nil, nil
	}
	s.yes(v1alpha1.Compatible, v1alpha1.ReasonCompatible, fmt.Sprintf("%s fits %s",
		settings.BackendType(store.Spec.Backend), settings.ProtocolKind(protocol.Spec.Protocol)))
	return protocol, nil
}

func (r *classes) store(ctx context.Context, name string, s status) (*v1alpha1.PillarStore, error) {
	store := &v1alpha1.PillarStore{}
	err := r.cached.Get(ctx, types.NamespacedName{Name: name}, store)
	if apierrors.IsNotFound(err) {
		s.no(v1alpha1.StoreReady, v1alpha1.ReasonPoolNotFound, fmt.Sprintf("PillarStore %q does not exist; create it, or create another class with the right spec.storeRef", name))
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read store %s: %w", name, err)
	}
	if isTrue(store.Status.Conditions, v1alpha1.Ready) {
		s.yes(v1alpha1.StoreReady, v1alpha1.ReasonStoreReady, fmt.Sprintf("PillarStore %q is Ready", name))
	} else {
		s.no(v1alpha1.StoreReady, v1alpha1.ReasonPoolNotReady, readyMessage("PillarStore", name, store.Status.Conditions))
	}
	return store, nil
}

func (r *classes) protocol(ctx context.Context, name string, s status) (*v1alpha1.PillarProtocol, error) {
	p := &v1alpha1.PillarProtocol{}
	err := r.cached.Get(ctx, types.NamespacedName{Name: name}, p)
	if apierrors.IsNotFound(err) {
		s.no(v1alpha1.ProtocolValid, v1alpha1.ReasonProtocolNotFound, fmt.Sprintf("PillarProtocol %q does not exist; create it, or create another class with the right spec.protocolRef", name))
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read protocol %s: %w", name, err)
	}
	if isTrue(p.Status.Conditions, v1alpha1.Ready) {
		s.yes(v1alpha1.ProtocolValid, v1alpha1.ReasonProtocolValid, fmt.Sprintf("PillarProtocol %q is Ready", name))
	} else {
		s.no(v1alpha1.ProtocolValid, v1alpha1.ReasonProtocolNotReady, readyMessage("PillarProtocol", name, p.Status.Conditions))
	}
	return p, nil
}

func readyMessage(kind, name string, conditions []metav1.Condition) string {
	if c := meta.FindStatusCondition(conditions, v1alpha1.Ready); c != nil && c.Message != "" {
		return fmt.Sprintf("%s %q is not Ready: %s", kind, name, c.Message)
	}
	return fmt.Sprintf("%s %q is not Ready yet", kind, name)
}
