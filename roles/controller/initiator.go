package controller

import (
	"context"
	"fmt"
	"slices"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// initiatorKeys are the CSINode annotations with a node's identity per protocol.
var initiatorKeys = map[transport.Kind]string{
	transport.NVMeTCP: v1alpha1.HostNQNAnnotation,
	transport.ISCSI:   v1alpha1.InitiatorIQNAnnotation,
}

// initiator reads the node's identity for the volume's protocol; it is needed with ACL off
// too, so that every publication can be revoked (block.md B-90). With ACL on it must be the
// node's alone: the target could not tell two nodes apart (U-3). One that is no name of the
// protocol is refused before it is recorded: the agent takes it for neither grant nor revoke
// (B-245), and the publication could never end.
func (s *Server) initiator(ctx context.Context, v *v1alpha1.PillarVolumeState, node string) (string, error) {
	kind := transport.Kind(v.Spec.ProtocolType)
	key, ok := initiatorKeys[kind]
	if !ok {
		return "", notYet("publishing over "+string(kind), "use a block volume")
	}
	id, err := s.recorded(ctx, v, node, key)
	if err != nil || kind != transport.NVMeTCP {
		return id, err
	}
	if _, err := transport.ParseNQN(id); err != nil {
		return "", csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("CSINode %q annotation %q: %w; restart its node plugin, which writes it", node, key, err))
	}
	return id, nil
}

// recorded is the identity that the node's CSINode has.
func (s *Server) recorded(ctx context.Context, v *v1alpha1.PillarVolumeState, node, key string) (string, error) {
	if spec := v.Status.ExportSpec; spec == nil || !spec.ACLEnabled {
		csiNode := &storagev1.CSINode{}
		if err := s.read(ctx, node, csiNode, csiserve.NotFound, fmt.Sprintf("CSINode %q", node)); err != nil {
			return "", err
		}
		return identity(csiNode.Name, csiNode.Annotations, key)
	}
	all, err := s.csiNodes(ctx)
	if err != nil {
		return "", err
	}
	return sole(all, node, key)
}

// csiNodes are the names and annotations of all nodes: a hundred of them in one answer are
// some tens of kilobytes.
func (s *Server) csiNodes(ctx context.Context) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(storagev1.SchemeGroupVersion.WithKind("CSINodeList"))
	if err := s.api.List(ctx, list); err != nil {
		return nil, csiserve.As(csiserve.Internal, fmt.Errorf("list CSINodes: %w", err))
	}
	return list.Items, nil
}

// sole answers the node's identity, which no other node may have.
func sole(all []metav1.PartialObjectMetadata, node, key string) (string, error) {
	i := slices.IndexFunc(all, func(n metav1.PartialObjectMetadata) bool { return n.Name == node })
	if i < 0 {
		return "", csiserve.As(csiserve.NotFound, fmt.Errorf("CSINode %q not found", node))
	}
	id, err := identity(node, all[i].Annotations, key)
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if other.Name != node && other.Annotations[key] == id {
			return "", csiserve.As(csiserve.FailedPrecondition,
				fmt.Errorf("nodes %q and %q have the same %s %q, so an ACL cannot tell them apart; give one of them its own and restart its node plugin", node, other.Name, key, id))
		}
	}
	return id, nil
}

func identity(node string, annotations map[string]string, key string) (string, error) {
	id := annotations[key]
	if id == "" {
		return "", csiserve.As(csiserve.FailedPrecondition,
			fmt.Errorf("CSINode %q is missing annotation %q; the node plugin writes it at start", node, key))
	}
	return id, nil
}
