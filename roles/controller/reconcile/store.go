package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// stores reconciles PillarStores.
type stores struct {
	cached, direct client.Client
}

func (r *stores) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.PillarStore{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.PillarAgent{}, mapTo(r.ofAgent)).
		Watches(&v1alpha1.PillarStorageClass{}, mapTo(func(_ context.Context, obj client.Object) []string {
			return []string{obj.(*v1alpha1.PillarStorageClass).Spec.StoreRef}
		})).
		Complete(r)
}

func (r *stores) ofAgent(ctx context.Context, agent client.Object) []string {
	list := &v1alpha1.PillarStoreList{}
	if err := r.cached.List(ctx, list); err != nil {
		return nil
	}
	var names []string
	for _, s := range list.Items {
		if s.Spec.AgentRef == agent.GetName() {
			names = append(names, s.Name)
		}
	}
	return names
}

// Reconcile copies what the store's agent says about its pool.
func (r *stores) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	store := &v1alpha1.PillarStore{}
	if err := r.cached.Get(ctx, req.NamespacedName, store); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	old := store.DeepCopy()
	s := status{&store.Status.Conditions, store.Generation}
	if !store.DeletionTimestamp.IsZero() {
		dependents, err := storeDependents(ctx, r.direct, store)
		if err != nil {
			return ctrl.Result{}, err
		}
		if dependents == "" {
			return ctrl.Result{}, release(ctx, r.cached, store, v1alpha1.StoreFinalizer)
		}
		s.deletionBlocked(dependents)
		return ctrl.Result{RequeueAfter: blocked}, writeStatus(ctx, r.cached, store, old)
	}
	if err := protect(ctx, r.cached, store, v1alpha1.StoreFinalizer); err != nil {
		return ctrl.Result{}, err
	}
	old = store.DeepCopy()
	s = status{&store.Status.Conditions, store.Generation}
	agent := &v1alpha1.PillarAgent{}
	err := r.cached.Get(ctx, types.NamespacedName{Name: store.Spec.AgentRef}, agent)
	switch {
	case apierrors.IsNotFound(err):
		orphaned(store, s)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read agent %s: %w", store.Spec.AgentRef, err)
	default:
		observe(store, agent, s)
	}
	result := ctrl.Result{}
	if !s.ready(v1alpha1.AgentReady, v1alpha1.PoolDiscovered, v1alpha1.BackendSupported) {
		notMet(s)
		result.RequeueAfter = notReady
	}
	return result, writeStatus(ctx, r.cached, store, old)
}

// notMet gives a store that is not Ready the reason its table names; the message says
// which condition failed.
func notMet(s status) {
	for _, c := range *s.conditions {
		if c.Type == v1alpha1.Ready && c.Reason != v1alpha1.ReasonTargetNotFound {
			s.no(v1alpha1.Ready, v1alpha1.ReasonConditionsNotMet, c.Message)
		}
	}
}

// orphaned is a store whose agent object does not exist.
func orphaned(store *v1alpha1.PillarStore, s status) {
	store.Status.Capacity = nil
	message := fmt.Sprintf("PillarAgent %q does not exist", store.Spec.AgentRef)
	for _, kind := range []string{v1alpha1.AgentReady, v1alpha1.PoolDiscovered, v1alpha1.BackendSupported} {
		s.no(kind, v1alpha1.ReasonTargetNotFound, message)
	}
}

// observe derives the conditions from the agent's status (api.md 2.3).
func observe(store *v1alpha1.PillarStore, agent *v1alpha1.PillarAgent, s status) {
	if !isTrue(agent.Status.Conditions, v1alpha1.Ready) {
		message := fmt.Sprintf("PillarAgent %q is not Ready", agent.Name)
		s.no(v1alpha1.AgentReady, v1alpha1.ReasonTargetNotReady, message)
		s.unknown(v1alpha1.PoolDiscovered, v1alpha1.ReasonWaitingForAgentData, message)
		s.unknown(v1alpha1.BackendSupported, v1alpha1.ReasonWaitingForAgentData, message)
		return
	}
	s.yes(v1alpha1.AgentReady, v1alpha1.ReasonAgentReady, "")
	pool, names := poolOf(store.Spec.Backend, agent.Status.DiscoveredPools)
	store.Status.Capacity = capacity(pool)
	switch mismatch := layoutMismatch(store.Spec.Backend, pool); {
	case pool == nil:
		s.no(v1alpha1.PoolDiscovered, v1alpha1.ReasonPoolNotFound,
			fmt.Sprintf("pool %q is not among the agent's: %s", settings.Pool(store.Spec.Backend), orNone(names)))
	case mismatch != "":
		s.no(v1alpha1.PoolDiscovered, v1alpha1.ReasonBackendLayoutMismatch, mismatch)
	default:
		s.yes(v1alpha1.PoolDiscovered, v1alpha1.ReasonPoolDiscovered, "")
	}
	token := string(settings.BackendType(store.Spec.Backend))
	if caps := agent.Status.Capabilities; caps == nil || !slices.Contains(caps.Backends, token) {
		s.no(v1alpha1.BackendSupported, v1alpha1.ReasonBackendNotSupported, fmt.Sprintf("agent %s does not offer %s", agent.Name, token))
		return
	}
	s.yes(v1alpha1.BackendSupported, v1alpha1.ReasonBackendSupported, "")
}

// poolOf finds the store's pool and names every pool there is.
func poolOf(b v1alpha1.Backend, pools []v1alpha1.DiscoveredPool) (pool *v1alpha1.DiscoveredPool, names []string) {
	kind, volumeType := "directory", ""
	switch {
	case b.ZFS != nil:
		kind, volumeType = "zfs", b.ZFS.VolumeType
	case b.LVM != nil:
		kind = "lvm"
	}
	for i, p := range pools {
		names = append(names, p.Name)
		if p.Name == settings.Pool(b) && p.Type == kind && (volumeType == "" || p.VolumeType == volumeType) {
			pool = &pools[i]
		}
	}
	return pool, names
}

// layoutMismatch says how store and agent disagree about the place inside of the pool.
func layoutMismatch(b v1alpha1.Backend, pool *v1alpha1.DiscoveredPool) string {
	var field, want, got string
	switch {
	case pool == nil:
		return ""
	case b.ZFS != nil:
		field, want, got = "zfs.parentDataset", b.ZFS.ParentDataset, pool.ParentDataset
	case b.LVM != nil:
		field, want, got = "lvm.thinPool", b.LVM.ThinPool, pool.ThinPool
	case b.Directory != nil:
		field, want, got = "directory.hostRoot", b.Directory.HostRoot, pool.HostRoot
	}
	if want == got {
		return ""
	}
	return fmt.Sprintf("%s is %q in the PillarStore and %q in the agent's configuration", field, want, got)
}

func capacity(pool *v1alpha1.DiscoveredPool) *v1alpha1.StoreCapacity {
	if pool == nil || pool.Total == nil || pool.Available == nil {
		return nil
	}
	used := resource.NewQuantity(max(0, pool.Total.Value()-pool.Available.Value()), resource.BinarySI)
	return &v1alpha1.StoreCapacity{Total: pool.Total, Available: pool.Available, Used: used}
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
