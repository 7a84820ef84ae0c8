package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// atOnce bounds how many agents are looked at at the same time. One that hangs takes every
// call to its deadline, and must not keep another's gate closed meanwhile.
const atOnce = 16

// poll is how often a Ready agent's health is read and its exports are checked
// (block.md appendix D).
const poll = 30 * time.Second

// Agents reconciles PillarAgents.
type Agents struct {
	kube
	pool    *agents.Pool
	exports *exports
	kicks   chan event.GenericEvent

	unlabeling sync.Mutex // of two last agents of a node, one must see that the other is gone

	mu    sync.Mutex
	waits map[string]time.Duration // until the next check of an agent that is not Ready
}

func newAgents(k kube, pool *agents.Pool) *Agents {
	r := &Agents{
		kube: k, pool: pool,
		kicks: make(chan event.GenericEvent, 64),
		waits: map[string]time.Duration{},
	}
	r.exports = newExports(k, r.Kick)
	return r
}

// Kick has the agent looked at now: its connection came up or broke, or a call found its
// gate closed (block.md B-279). A full queue means that this is about to happen anyway.
func (r *Agents) Kick(name string) {
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: name}}
	select {
	case r.kicks <- event.GenericEvent{Object: pa}:
	default:
	}
}

// reconnected is Kick after the connection came up or broke.
func (r *Agents) reconnected(name string) {
	r.exports.reconnected(name)
	r.Kick(name)
}

func (r *Agents) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.PillarAgent{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, mapTo(r.onNode), builder.WithPredicates(nodeMoved)).
		Watches(&v1alpha1.PillarStore{}, mapTo(r.leaving(storeAgent)), removed).
		Watches(&v1alpha1.PillarVolumeState{}, mapTo(r.leaving(volumeAgent)), removed).
		WatchesRawSource(source.Channel(r.kicks, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: atOnce}).
		Complete(r)
}

// nodeMoved lets only those node changes through that can move an agent or its label;
// heartbeats change neither.
var nodeMoved = predicate.Or[client.Object](predicate.LabelChangedPredicate{}, predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, now := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return fmt.Sprint(before.Status.Addresses) != fmt.Sprint(now.Status.Addresses)
	},
})

func (r *Agents) onNode(ctx context.Context, node client.Object) []string {
	return matching(ctx, r.kube, &v1alpha1.PillarAgentList{}, func(pa *v1alpha1.PillarAgent) bool {
		return pa.Spec.NodeRef != nil && pa.Spec.NodeRef.Name == node.GetName()
	})
}

// leaving answers the agent of a store or volume that is gone, if its deletion may have
// waited for that. Others are not asked how they are for each of a thousand volumes.
func (r *Agents) leaving(agent func(obj client.Object) string) func(context.Context, client.Object) []string {
	return func(ctx context.Context, obj client.Object) []string {
		pa := &v1alpha1.PillarAgent{}
		err := r.cached.Get(ctx, types.NamespacedName{Name: agent(obj)}, pa)
		if err != nil || pa.DeletionTimestamp.IsZero() {
			return nil
		}
		return []string{pa.Name}
	}
}

func storeAgent(obj client.Object) string { return obj.(*v1alpha1.PillarStore).Spec.AgentRef }

func volumeAgent(obj client.Object) string { return obj.(*v1alpha1.PillarVolumeState).Spec.AgentRef }

// Reconcile brings one PillarAgent's status up to date and opens its agent's gate.
func (r *Agents) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pa := &v1alpha1.PillarAgent{}
	err := r.cached.Get(ctx, req.NamespacedName, pa)
	if apierrors.IsNotFound(err) {
		r.pool.Forget(req.Name)
		r.exports.learn(ctx, req.Name, standing{why: "PillarAgent " + req.Name + " does not exist", asked: time.Now()})
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	deleting, dependents := !pa.DeletionTimestamp.IsZero(), ""
	if !deleting {
		err = r.protect(ctx, pa, v1alpha1.AgentFinalizer)
	} else if dependents, err = agentDependents(ctx, r.direct, pa.Name); err == nil && dependents == "" {
		return ctrl.Result{}, r.finalize(ctx, pa)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.check(ctx, pa, dependents)
}

// check looks at node and agent and writes what it found. An agent object whose deletion
// waits for dependents goes on serving them.
func (r *Agents) check(ctx context.Context, pa *v1alpha1.PillarAgent, dependents string) (ctrl.Result, error) {
	s := begin(pa, &pa.Status.Conditions)
	if err := errors.Join(r.resolve(ctx, pa, s), r.alone(ctx, pa, s)); err != nil {
		return ctrl.Result{}, err
	}
	r.connect(ctx, pa, s)
	if err := r.moved(ctx, pa, s); err != nil {
		return ctrl.Result{}, err
	}
	if dependents != "" {
		s.deletionBlocked(dependents)
		return r.finish(ctx, s, blocked)
	}
	return r.finish(ctx, s, r.wait(pa.Name, agentIsReady(pa, s)))
}

// agentIsReady derives Ready: an external agent's node is unknown, which is fine.
func agentIsReady(pa *v1alpha1.PillarAgent, s status) bool {
	needs := []string{v1alpha1.NodeExists, v1alpha1.AgentConnected, v1alpha1.ExportsReady}
	if pa.Spec.External != nil {
		needs = needs[1:]
	}
	return s.ready(needs...)
}

// wait answers when to look again: every 30 s while Ready, else from 1 s growing to 15 s,
// so that an agent that just starts is met soon.
func (r *Agents) wait(name string, ready bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ready {
		delete(r.waits, name)
		return poll
	}
	next := min(max(r.waits[name]*5/4, time.Second), notReady)
	r.waits[name] = next
	return next
}

// resolve finds the agent's node and address, and labels the node.
func (r *Agents) resolve(ctx context.Context, pa *v1alpha1.PillarAgent, s status) error {
	if pa.Spec.External != nil {
		s.unknown(v1alpha1.NodeExists, v1alpha1.ReasonExternalMode, "spec.external: the agent is outside of this cluster")
		pa.Status.ResolvedAddress = ""
		if bad := settings.CheckAgent(pa.Spec); len(bad) > 0 {
			s.no(v1alpha1.AgentConnected, v1alpha1.ReasonAddressNotResolved, bad.Error()+"; create another PillarAgent with the right one")
			return nil
		}
		pa.Status.ResolvedAddress = dialled(pa)
		return nil
	}
	pa.Status.ResolvedAddress = ""
	ref, node := pa.Spec.NodeRef, &corev1.Node{}
	err := r.cached.Get(ctx, types.NamespacedName{Name: ref.Name}, node)
	if apierrors.IsNotFound(err) {
		s.no(v1alpha1.NodeExists, v1alpha1.ReasonNodeNotFound, fmt.Sprintf(
			"node %q does not exist (see kubectl get nodes); join it to the cluster, or create another PillarAgent with the right spec.nodeRef.name", ref.Name))
		return nil
	}
	if err != nil {
		return fmt.Errorf("read node %s: %w", ref.Name, err)
	}
	s.yes(v1alpha1.NodeExists, v1alpha1.ReasonNodeFound, fmt.Sprintf("node %q exists", ref.Name))
	address, err := nodeAddress(ref, node.Status.Addresses)
	if err == nil {
		pa.Status.ResolvedAddress = address
	} else {
		s.no(v1alpha1.AgentConnected, v1alpha1.ReasonAddressNotResolved, err.Error())
	}
	return r.label(ctx, node, "true")
}

// alone leaves an agent to the oldest PillarAgent that stands for it. Two would each send a
// complete list with their own half of the volumes, and the gate would open without the
// other's (block.md B-271, N-12).
func (r *Agents) alone(ctx context.Context, pa *v1alpha1.PillarAgent, s status) error {
	list := &v1alpha1.PillarAgentList{}
	if err := r.cached.List(ctx, list); err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	for _, other := range list.Items {
		if other.UID != pa.UID && sameAgent(&other, pa) && older(&other, pa) {
			pa.Status.ResolvedAddress = ""
			s.no(v1alpha1.AgentConnected, v1alpha1.ReasonAddressNotResolved, fmt.Sprintf(
				"PillarAgent %q stands for this agent already, and a machine has one; delete this PillarAgent and let stores name %q", other.Name, other.Name))
			return nil
		}
	}
	return nil
}

// sameAgent tells whether two objects name one machine: by its node, or by its address.
func sameAgent(a, b *v1alpha1.PillarAgent) bool {
	if a.Spec.NodeRef != nil && b.Spec.NodeRef != nil {
		return a.Spec.NodeRef.Name == b.Spec.NodeRef.Name
	}
	return dialled(a) != "" && dialled(a) == dialled(b)
}

func dialled(pa *v1alpha1.PillarAgent) string {
	if e := pa.Spec.External; e != nil {
		return net.JoinHostPort(e.Address, fmt.Sprint(e.Port))
	}
	return pa.Status.ResolvedAddress
}

func older(a, b *v1alpha1.PillarAgent) bool {
	if a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.UID < b.UID
	}
	return a.CreationTimestamp.Before(&b.CreationTimestamp)
}

// label sets or, with an empty value, removes the label that places the agent's pod.
func (r *Agents) label(ctx context.Context, node *corev1.Node, value string) error {
	if node.Labels[v1alpha1.AgentNodeLabel] == value {
		return nil
	}
	old := node.DeepCopy()
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[v1alpha1.AgentNodeLabel] = value
	if value == "" {
		delete(node.Labels, v1alpha1.AgentNodeLabel)
	}
	if err := r.cached.Patch(ctx, node, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("label node %s: %w", node.Name, err)
	}
	return nil
}

// nodeAddress picks the agent's address, with port, among its node's (api.md 2.2).
func nodeAddress(ref *v1alpha1.NodeRef, addresses []corev1.NodeAddress) (string, error) {
	kind := corev1.NodeAddressType(ref.AddressType)
	if kind == "" {
		kind = corev1.NodeInternalIP
	}
	port := v1alpha1.DefaultAgentPort
	if ref.Port != nil {
		port = *ref.Port
	}
	var others []string
	for _, a := range addresses {
		inside, err := selected(ref.AddressSelector, a.Address)
		if err != nil {
			return "", err
		}
		if inside && a.Type == kind {
			return net.JoinHostPort(a.Address, fmt.Sprint(port)), nil
		}
		others = append(others, string(a.Type)+" "+a.Address)
	}
	want, change := string(kind)+" address", "spec.nodeRef.addressType"
	if ref.AddressSelector != "" {
		want += " inside " + ref.AddressSelector
		change += " or spec.nodeRef.addressSelector"
	}
	return "", fmt.Errorf("node %q has no %s (it has %s); change %s", ref.Name, want, cmp.Or(strings.Join(others, ", "), "none"), change)
}

func selected(cidr, address string) (bool, error) {
	if cidr == "" {
		return true, nil
	}
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return false, fmt.Errorf("spec.nodeRef.addressSelector %q is no CIDR; write it like 10.0.0.0/24", cidr)
	}
	ip, err := netip.ParseAddr(address)
	return err == nil && prefix.Contains(ip.Unmap()), nil
}

// finalize lets the object go: no store, volume or PV is left on the agent.
func (r *Agents) finalize(ctx context.Context, pa *v1alpha1.PillarAgent) error {
	r.unlabeling.Lock()
	defer r.unlabeling.Unlock()
	if err := r.unlabel(ctx, pa); err != nil {
		return err
	}
	return r.release(ctx, pa, v1alpha1.AgentFinalizer)
}

// unlabel removes the node's label unless another PillarAgent names the node.
func (r *Agents) unlabel(ctx context.Context, pa *v1alpha1.PillarAgent) error {
	if pa.Spec.NodeRef == nil || !settings.ObjectName(pa.Spec.NodeRef.Name) { // there is no such node
		return nil
	}
	list := &v1alpha1.PillarAgentList{}
	if err := r.direct.List(ctx, list); err != nil {
		return fmt.Errorf("list agents: %w", err)
	}
	for _, other := range list.Items {
		if other.Name != pa.Name && other.Spec.NodeRef != nil && other.Spec.NodeRef.Name == pa.Spec.NodeRef.Name {
			return nil
		}
	}
	node := &corev1.Node{}
	err := r.direct.Get(ctx, types.NamespacedName{Name: pa.Spec.NodeRef.Name}, node)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	return r.label(ctx, node, "")
}
