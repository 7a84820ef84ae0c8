package reconcile

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// initiators warns about nodes with one identity: an ACL cannot tell them apart
// (block.md B-43, U-3). Publishing with an ACL to either of them is refused by the CSI
// service; this is how an administrator hears of it before.
//
// Only the metadata of CSINodes is watched; the identities are annotations.
type initiators struct{ kube }

// identity is an annotation a node's initiator is known by, with what to do where two
// nodes have the same.
type identity struct{ key, name, fix string }

var identities = []identity{
	{v1alpha1.HostNQNAnnotation, "host NQN", "remove /etc/nvme/hostnqn and /etc/nvme/hostid on one of them and restart its pillar node pod"},
	{v1alpha1.InitiatorIQNAnnotation, "initiator IQN", "remove /etc/iscsi/initiatorname.iscsi on one of them and restart its pillar node pod"},
}

func (r *initiators) setup(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("initiators").
		WatchesMetadata(&storagev1.CSINode{}, mapTo(r.alike), builder.WithPredicates(predicate.AnnotationChangedPredicate{})).
		Complete(r)
}

// alike names a node whose identity is new, and those that have the same.
func (r *initiators) alike(ctx context.Context, node client.Object) []string {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return []string{node.GetName()}
	}
	names := []string{node.GetName()}
	for _, d := range duplicates(node.GetName(), nodes) {
		names = append(names, d.nodes...)
	}
	return names
}

func (r *initiators) nodes(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(storagev1.SchemeGroupVersion.WithKind("CSINodeList"))
	if err := r.cached.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list CSINodes: %w", err)
	}
	return list.Items, nil
}

// Reconcile warns on a node whose identity others have, too.
func (r *initiators) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	nodes, err := r.nodes(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	found := duplicates(req.Name, nodes)
	if len(found) == 0 {
		return ctrl.Result{}, nil
	}
	node := &corev1.Node{}
	if err := r.cached.Get(ctx, req.NamespacedName, node); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err) // a CSINode without its Node is on its way out
	}
	for _, d := range found {
		r.tell(node, corev1.EventTypeWarning, eventDuplicate, "Compare", fmt.Sprintf(
			"node %q has the same %s %s as %s, so that no ACL can tell them apart and publishing with acl: true is refused; %s",
			node.Name, d.name, d.value, quoted(d.nodes), d.fix))
	}
	return ctrl.Result{}, nil
}

func quoted(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%q and %d more", names[:most], len(names)-most)
	}
	return fmt.Sprintf("%q", names)
}

// duplicate is an identity that other nodes have, too.
type duplicate struct {
	identity
	value string
	nodes []string
}

func duplicates(name string, nodes []metav1.PartialObjectMetadata) (found []duplicate) {
	own := map[string]string{}
	for _, n := range nodes {
		if n.Name == name {
			own = n.Annotations
		}
	}
	for _, id := range identities {
		d := duplicate{identity: id, value: own[id.key]}
		for _, n := range nodes {
			if d.value != "" && n.Name != name && n.Annotations[id.key] == d.value {
				d.nodes = append(d.nodes, n.Name)
			}
		}
		if len(d.nodes) > 0 {
			found = append(found, d)
		}
	}
	return found
}
