package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// stores reconciles PillarStores.
type stores struct{ kube }

func (r *stores) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.PillarStore{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.PillarAgent{}, mapTo(r.ofAgent)).
		Watches(&v1alpha1.PillarStorageClass{}, mapTo(func(_ context.Context, obj client.Object) []string {
			return []string{obj.(*v1alpha1.PillarStorageClass).Spec.StoreRef}
		}), removed).
		Watches(&v1alpha1.PillarVolumeState{}, mapTo(r.deleting), removed).
		Complete(r)
}

func (r *stores) ofAgent(ctx context.Context, agent client.Object) []string {
	return r.those(ctx, func(s *v1alpha1.PillarStore) bool { return s.Spec.AgentRef == agent.GetName() })
}

// deleting names the stores that a volume which is gone now may have held back.
func (r *stores) deleting(ctx context.Context, _ client.Object) []string {
	return r.those(ctx, func(s *v1alpha1.PillarStore) bool { return !s.DeletionTimestamp.IsZero() })
}

func (r *stores) those(ctx context.Context, match func(*v1alpha1.PillarStore) bool) []string {
	return matching(ctx, r.kube, &v1alpha1.PillarStoreList{}, match)
}

// Reconcile copies what the store's agent says about its pool.
func (r *stores) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	store := &v1alpha1.PillarStore{}
	if err := r.cached.Get(ctx, req.NamespacedName, store); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	dependents, gone, err := r.guard(ctx, store, v1alpha1.StoreFinalizer, func() (string, error) {
		return storeDependents(ctx, r.direct, store)
	})
	if err != nil || gone {
		return ctrl.Result{}, err
	}
	s := begin(store, &store.Status.Conditions)
	agent := &v1alpha1.PillarAgent{}
	err = r.cached.Get(ctx, types.NamespacedName{Name: store.Spec.AgentRef}, agent)
	switch {
	case apierrors.IsNotFound(err):
		orphaned(store, s)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("read agent %s: %w", store.Spec.AgentRef, err)
	default:
		observe(store, agent, s)
	}
	switch {
	case dependents != "":
		s.deletionBlocked(dependents)
		return r.finish(ctx, s, blocked)
	case !storeIsReady(store, agent, s):
		return r.finish(ctx, s, notReady)
	}
	return r.finish(ctx, s, 0)
}

// storeIsReady derives Ready. Its reason is ConditionsNotMet unless the agent object is
// missing; the message names the condition that failed.
func storeIsReady(store *v1alpha1.PillarStore, agent *v1alpha1.PillarAgent, s status) bool {
	if s.ready(v1alpha1.AgentReady, v1alpha1.PoolDiscovered, v1alpha1.BackendSupported) {
		why := noNFS(store, agent)
		if why != "" {
			s.no(v1alpha1.Ready, v1alpha1.ReasonConditionsNotMet, why)
		}
		return why == ""
	}
	if c := meta.FindStatusCondition(*s.conditions, v1alpha1.Ready); c.Reason != v1alpha1.ReasonTargetNotFound {
		s.no(v1alpha1.Ready, v1alpha1.ReasonConditionsNotMet, c.Message)
	}
	return false
}

// noNFS says why volumes of a dataset store could not be exported (files.md F-56): the
// agent's own reason stands in its health.
func noNFS(store *v1alpha1.PillarStore, agent *v1alpha1.PillarAgent) string {
	nfs := string(transport.NFS)
	if settings.BackendType(store.Spec.Backend) != storage.ZFSDataset || slices.Contains(agent.Status.Capabilities.Protocols, nfs) {
		return ""
	}
	return fmt.Sprintf("PillarAgent %q does not offer nfs, which zfs-dataset volumes need%s", agent.Name, agentSays(agent, subsystem(nfs, "")))
}

// orphaned is a store whose agent object does not exist.
func orphaned(store *v1alpha1.PillarStore, s status) {
	store.Status.Capacity = nil
	message := fmt.Sprintf("PillarAgent %q does not exist; create it, or create another store with the right spec.agentRef", store.Spec.AgentRef)
	for _, kind := range []string{v1alpha1.AgentReady, v1alpha1.PoolDiscovered, v1alpha1.BackendSupported} {
		s.no(kind, v1alpha1.ReasonTargetNotFound, message)
	}
}

// observe derives the conditions from the agent's status (api.md 2.3).
func observe(store *v1alpha1.PillarStore, agent *v1alpha1.PillarAgent, s status) {
	if !isTrue(agent.Status.Conditions, v1alpha1.Ready) || agent.Status.Capabilities == nil {
		message := readyMessage("PillarAgent", agent.Name, agent.Status.Conditions)
		s.no(v1alpha1.AgentReady, v1alpha1.ReasonTargetNotReady, message)
		s.unknown(v1alpha1.PoolDiscovered, v1alpha1.ReasonWaitingForAgentData, "PillarAgent is not Ready")
		s.unknown(v1alpha1.BackendSupported, v1alpha1.ReasonWaitingForAgentData, "PillarAgent is not Ready")
		return
	}
	s.yes(v1alpha1.AgentReady, v1alpha1.ReasonAgentReady, fmt.Sprintf("PillarAgent %q is Ready", agent.Name))
	discover(store, agent, s)
	token := string(settings.BackendType(store.Spec.Backend))
	if offered := agent.Status.Capabilities.Backends; !slices.Contains(offered, token) {
		s.no(v1alpha1.BackendSupported, v1alpha1.ReasonBackendNotSupported, fmt.Sprintf(
			"PillarAgent %q does not offer %s%s; it offers what it finds pools of, see PoolDiscovered", agent.Name, token, but(offered)))
		return
	}
	s.yes(v1alpha1.BackendSupported, v1alpha1.ReasonBackendSupported, fmt.Sprintf("PillarAgent %q offers %s", agent.Name, token))
}

// discover looks for the pool among those of the agent.
func discover(store *v1alpha1.PillarStore, agent *v1alpha1.PillarAgent, s status) {
	const lost = "; has it another name now, is it exported, or a disk away? A new one: create it and list it in the agent's backends"
	pool := poolOf(store.Spec.Backend, agent.Status.DiscoveredPools)
	says := poolTrouble(store.Spec.Backend, agent)
	store.Status.Capacity = capacity(pool)
	if pool == nil {
		want := poolName(poolWanted(store.Spec.Backend))
		var names []string
		for _, p := range agent.Status.DiscoveredPools {
			names = append(names, poolName(p))
		}
		s.no(v1alpha1.PoolDiscovered, v1alpha1.ReasonPoolNotFound, fmt.Sprintf(
			"PillarAgent %q has no %s%s%s", agent.Name, want, but(names), cmp.Or(says, lost)))
		return
	}
	if mismatch := layoutMismatch(store.Spec.Backend, pool); mismatch != "" {
		s.no(v1alpha1.PoolDiscovered, v1alpha1.ReasonBackendLayoutMismatch, mismatch)
		return
	}
	s.yes(v1alpha1.PoolDiscovered, v1alpha1.ReasonPoolDiscovered, fmt.Sprintf("PillarAgent %q has %s%s", agent.Name, poolName(*pool), says))
}

// poolTrouble is what the agent says about the store's pool, and no other: that its kernel
// module is missing, or else what is wrong with the pool.
func poolTrouble(b v1alpha1.Backend, agent *v1alpha1.PillarAgent) string {
	pool := poolWanted(b)
	return agentSays(agent, subsystem(pool.Type, ""), subsystem("pool", pool.Name))
}

// poolWanted is the pool a store stands for, as an agent would report it. A ZFS pool may be
// listed twice, for zvols and for datasets.
func poolWanted(b v1alpha1.Backend) v1alpha1.DiscoveredPool {
	p := v1alpha1.DiscoveredPool{Name: settings.Pool(b), Type: "directory"}
	switch {
	case b.ZFS != nil:
		p.Type, p.VolumeType = "zfs", cmp.Or(b.ZFS.VolumeType, v1alpha1.ZFSVolumeTypeZvol)
	case b.LVM != nil:
		p.Type = "lvm"
	}
	return p
}

// poolName is a pool as messages name it: "zfs zvol pool tank".
func poolName(p v1alpha1.DiscoveredPool) string {
	return strings.Join(strings.Fields(p.Type+" "+p.VolumeType+" pool "+p.Name), " ")
}

func poolOf(b v1alpha1.Backend, pools []v1alpha1.DiscoveredPool) *v1alpha1.DiscoveredPool {
	want := poolWanted(b)
	for i, p := range pools {
		if p.Name == want.Name && p.Type == want.Type && p.VolumeType == want.VolumeType {
			return &pools[i]
		}
	}
	return nil
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
	return fmt.Sprintf("spec.backend.%s is %q in the PillarStore and %q in the agent's configuration; make them equal", field, want, got)
}

func capacity(pool *v1alpha1.DiscoveredPool) *v1alpha1.StoreCapacity {
	if pool == nil || pool.Total == nil || pool.Available == nil {
		return nil
	}
	used := resource.NewQuantity(max(0, pool.Total.Value()-pool.Available.Value()), resource.BinarySI)
	return &v1alpha1.StoreCapacity{Total: pool.Total, Available: pool.Available, Used: used}
}

// but names what there is instead of what is missing.
func but(names []string) string {
	if len(names) == 0 {
		return ", nor any other"
	}
	return " but " + strings.Join(names, ", ")
}
