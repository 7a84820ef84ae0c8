package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/storage/host/crashpoint"
)

// csiNodes is what publishing identities needs of client-go.
type csiNodes interface {
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (*storagev1.CSINode, error)
}

// maxPublishPause bounds the pause between two attempts. kubelet makes the CSINode within
// seconds of its start; a pod waits for the annotation.
const maxPublishPause = 5 * time.Second

// publishIdentity writes the initiator names to the node's CSINode, again and again until
// it succeeds or ctx ends: kubelet may make the object after us. An empty iqn takes an old
// annotation away.
func publishIdentity(ctx context.Context, nodes csiNodes, node, hostNQN, iqn string, log *zap.Logger) {
	patch, err := identityPatch(hostNQN, iqn)
	if err != nil {
		log.Error("identity not published", zap.Error(err))
		return
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, maxPublishPause) {
		crashpoint.Before(crashpoint.APIWrite, "patch CSINode "+node)
		_, err := nodes.Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "pillar-csi-node"})
		crashpoint.After(crashpoint.APIWrite, "patch CSINode "+node)
		if err == nil {
			log.Info("identity published", zap.String("node", node), zap.String("nqn", hostNQN), zap.String("iqn", iqn))
			return
		}
		if pause >= maxPublishPause {
			log.Warn("identity not published yet", zap.String("node", node), zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// identityPatch is a merge patch of metadata.annotations and of nothing else: a write of
// the whole object from a stale copy once erased the node's driver registrations.
func identityPatch(hostNQN, iqn string) ([]byte, error) {
	annotations := map[string]any{attach.Prefix + "nvmeof-host-nqn": hostNQN, attach.Prefix + "iscsi-initiator-iqn": nil}
	if iqn != "" {
		annotations[attach.Prefix+"iscsi-initiator-iqn"] = iqn
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return nil, fmt.Errorf("patch of CSINode annotations: %w", err)
	}
	return patch, nil
}
