package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/chap"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// reserve writes the record of a new volume, or answers storage.ErrConflict if there is
// one by now. Everything the volume needs must be there before, and its agent must answer,
// so that a refused create leaves no record behind (block.md B-74).
func (s *Server) reserve(ctx context.Context, v *v1alpha1.PillarVolumeState) (*v1alpha1.PillarVolumeState, error) {
	if err := s.unique(ctx, v); err != nil {
		return nil, err
	}
	a, err := s.agent(ctx, v, csiserve.FailedPrecondition)
	if err != nil {
		return nil, err
	}
	if err := reachable(v.Spec.Resolved); err != nil {
		return nil, err
	}
	if _, err := a.client.Health(ctx); err != nil {
		return nil, a.failed("check health", err)
	}
	return s.ledger.Create(ctx, v)
}

// reachable is nil if this version can serve a volume with these settings.
func reachable(r *v1alpha1.Resolved) error {
	if r == nil {
		return nil // a damaged record; whoever needs the settings says so
	}
	if later := settings.NotYet(*r); len(later) > 0 {
		return csiserve.As(csiserve.Unimplemented, errors.New(strings.Join(later, "; ")))
	}
	return nil
}

// notYet refuses what a later version does: recorded now, it would be promised and not kept.
func notYet(what, fix string) error {
	return csiserve.As(csiserve.Unimplemented, fmt.Errorf("%s is not supported yet; %s", what, fix))
}

// credentials checks the Secret of a protocol with CHAP (block.md B-75); its values go
// nowhere yet.
func (s *Server) credentials(ctx context.Context, p v1alpha1.Protocol) error {
	method, secret := chap.Of(p)
	_, err := chap.Read(ctx, s.api, s.namespace, secret, method)
	if unusable := (*chap.SecretError)(nil); errors.As(err, &unusable) {
		return csiserve.As(csiserve.FailedPrecondition, err)
	}
	return err
}

// unique is AlreadyExists if another volume of the same agent derives the same target
// name (block.md B-23). Pool and name hold no slash, so two can only meet at another dot.
func (s *Server) unique(ctx context.Context, v *v1alpha1.PillarVolumeState) error {
	suffix := settings.TargetSuffix(v.Spec.AgentVolumeID)
	if strings.Count(suffix, ".") == 1 {
		return nil
	}
	other, err := s.ledger.Find(ctx, func(o *v1alpha1.PillarVolumeState) bool {
		return o.Spec.AgentRef == v.Spec.AgentRef && o.Name != v.Name && settings.TargetSuffix(o.Spec.AgentVolumeID) == suffix
	})
	if err == nil && other != nil {
		err = csiserve.As(csiserve.AlreadyExists, fmt.Errorf("volume %s would share target name %s with volume %s", v.Name, suffix, other.Name))
	}
	return err
}

// sameClaim is AlreadyExists if the record was made for another claim (block.md B-85). A
// claim that is gone changes nothing: its record is replayed.
func (s *Server) sameClaim(ctx context.Context, w createRequest, v *v1alpha1.PillarVolumeState) error {
	if v.Spec.ClaimRef == nil || w.PVCName == "" || w.PVCNamespace == "" {
		return nil
	}
	pvc := &corev1.PersistentVolumeClaim{}
	key := types.NamespacedName{Namespace: w.PVCNamespace, Name: w.PVCName}
	err := s.readKey(ctx, key, pvc, csiserve.NotFound, "PersistentVolumeClaim "+key.String())
	if csiserve.CodeOf(err) == csiserve.NotFound {
		return nil
	}
	if err == nil && string(pvc.UID) != v.Spec.ClaimRef.UID {
		err = csiserve.As(csiserve.AlreadyExists, fmt.Errorf("volume %s was made for claim UID %s, not %s", w.name, v.Spec.ClaimRef.UID, pvc.UID))
	}
	return err
}
