package reconcile

import (
	"context"
	"fmt"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// protocols reconciles PillarProtocols.
type protocols struct {
	cached, direct client.Client
}

func (r *protocols) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.PillarProtocol{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.PillarStorageClass{}, mapTo(func(_ context.Context, obj client.Object) []string {
			return []string{obj.(*v1alpha1.PillarStorageClass).Spec.ProtocolRef}
		})).
		Watches(&v1alpha1.PillarStore{}, mapTo(r.all), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
}

// all names every protocol: a store that comes or goes changes who is reached.
func (r *protocols) all(ctx context.Context, _ client.Object) []string {
	list := &v1alpha1.PillarProtocolList{}
	if err := r.cached.List(ctx, list); err != nil {
		return nil
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// Reconcile counts who uses the protocol.
func (r *protocols) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	p := &v1alpha1.PillarProtocol{}
	if err := r.cached.Get(ctx, req.NamespacedName, p); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	deleting := !p.DeletionTimestamp.IsZero()
	blockers := ""
	if deleting {
		var err error
		if blockers, err = protocolDependents(ctx, r.direct, p.Name); err != nil {
			return ctrl.Result{}, err
		}
		if blockers == "" {
			return ctrl.Result{}, release(ctx, r.cached, p, v1alpha1.ProtocolFinalizer)
		}
	} else if err := protect(ctx, r.cached, p, v1alpha1.ProtocolFinalizer); err != nil {
		return ctrl.Result{}, err
	}
	old := p.DeepCopy()
	if err := r.bindings(ctx, p); err != nil {
		return ctrl.Result{}, err
	}
	s := status{&p.Status.Conditions, p.Generation}
	if deleting {
		s.deletionBlocked(blockers)
		return ctrl.Result{RequeueAfter: blocked}, writeStatus(ctx, r.cached, p, old)
	}
	s.yes(v1alpha1.Ready, v1alpha1.ReasonProtocolConfigured, string(settings.ProtocolKind(p.Spec.Protocol))+" is configured")
	return ctrl.Result{}, writeStatus(ctx, r.cached, p, old)
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
