package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/chap"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// protocols reconciles PillarProtocols.
type protocols struct{ kube }

func (r *protocols) setup(mgr ctrl.Manager) error {
	edited := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.PillarProtocol{}, edited).
		Watches(&v1alpha1.PillarStorageClass{}, mapTo(func(_ context.Context, obj client.Object) []string {
			return []string{obj.(*v1alpha1.PillarStorageClass).Spec.ProtocolRef}
		}), edited).
		Watches(&v1alpha1.PillarStore{}, mapTo(r.all), edited).
		Complete(r)
}

// all names every protocol: a store that comes or goes changes who is reached.
func (r *protocols) all(ctx context.Context, _ client.Object) []string {
	return matching(ctx, r.kube, &v1alpha1.PillarProtocolList{}, func(*v1alpha1.PillarProtocol) bool { return true })
}

// Reconcile counts who uses the protocol and looks whether its Secret can be used.
func (r *protocols) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p := &v1alpha1.PillarProtocol{}
	if err := r.cached.Get(ctx, req.NamespacedName, p); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	dependents, gone, err := r.guard(ctx, p, v1alpha1.ProtocolFinalizer, func() (string, error) {
		return protocolDependents(ctx, r.direct, p.Name)
	})
	if err != nil || gone {
		return ctrl.Result{}, err
	}
	s := begin(p, &p.Status.Conditions)
	if err := r.bindings(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	if dependents != "" {
		s.deletionBlocked(dependents)
		return r.finish(ctx, s, blocked)
	}
	next, err := r.configured(ctx, p, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.finish(ctx, s, next)
}

// configured sets Ready and answers when to look again. A Secret cannot be watched with
// the right to get it by name, so a protocol with one is looked at in every period.
func (r *protocols) configured(ctx context.Context, p *v1alpha1.PillarProtocol, s status) (time.Duration, error) {
	method, secret := chap.Of(p.Spec.Protocol)
	_, err := chap.Read(ctx, r.direct, r.namespace, secret, method)
	if broken := new(chap.SecretError); errors.As(err, &broken) || apierrors.IsForbidden(err) {
		s.no(v1alpha1.Ready, v1alpha1.ReasonAuthSecretInvalid, err.Error())
		return notReady, nil
	}
	if err != nil { // says nothing about the Secret
		return 0, err
	}
	message := string(settings.ProtocolKind(p.Spec.Protocol)) + " is configured"
	if method == v1alpha1.AuthNone {
		s.yes(v1alpha1.Ready, v1alpha1.ReasonProtocolConfigured, message)
		return 0, nil
	}
	s.yes(v1alpha1.Ready, v1alpha1.ReasonProtocolConfigured, fmt.Sprintf("%s with %s from Secret %q", message, method, r.namespace+"/"+secret))
	return poll, nil
}

// bindings fills in the classes that name the protocol and the agents they reach.
func (r *protocols) bindings(ctx context.Context, p *v1alpha1.PillarProtocol) error {
	classes, stores := &v1alpha1.PillarStorageClassList{}, &v1alpha1.PillarStoreList{}
	if err := r.cached.List(ctx, classes); err != nil {
		return fmt.Errorf("list classes: %w", err)
	}
	if err := r.cached.List(ctx, stores); err != nil {
		return fmt.Errorf("list stores: %w", err)
	}
	agentOf := map[string]string{}
	for _, s := range stores.Items {
		agentOf[s.Name] = s.Spec.AgentRef
	}
	p.Status.StorageClassCount, p.Status.ActiveAgents = 0, nil
	for _, psc := range classes.Items {
		if psc.Spec.ProtocolRef != p.Name {
			continue
		}
		p.Status.StorageClassCount++
		if agent := agentOf[psc.Spec.StoreRef]; agent != "" {
			p.Status.ActiveAgents = append(p.Status.ActiveAgents, agent)
		}
	}
	slices.Sort(p.Status.ActiveAgents)
	p.Status.ActiveAgents = slices.Compact(p.Status.ActiveAgents)
	return nil
}
