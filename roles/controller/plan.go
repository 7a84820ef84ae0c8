package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// plan reads everything the request names and answers the record of a new volume, not
// yet written. Nothing is guessed for what is missing (block.md B-70 to B-74).
func (s *Server) plan(ctx context.Context, w createRequest) (*v1alpha1.PillarVolumeState, error) {
	if len(w.bad) > 0 {
		unresolved := settings.Layers{Bad: w.bad, ClassDocs: w.Documents}
		_, _ = s.claim(ctx, w, &unresolved) // one that cannot be read has no more to say
		return nil, settings.Unresolved(unresolved)
	}
	layers, protocolRef, err := s.layers(ctx, &w)
	if err != nil {
		return nil, err
	}
	claim, err := s.claim(ctx, w, &layers)
	if err != nil {
		return nil, err
	}
	if err := s.credentials(ctx, layers.Protocol.Protocol); err != nil {
		return nil, err
	}
	plan, err := settings.Resolve(layers)
	if bad := (settings.Problems)(nil); err == nil || errors.As(err, &bad) {
		err = unfit(bad, settings.ProtocolKind(layers.Protocol.Protocol), w.caps)
	}
	if err != nil {
		return nil, err
	}
	id := volumeID{layers.Store.AgentRef, plan.Protocol, plan.Backend, plan.Volume}
	return &v1alpha1.PillarVolumeState{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.name,
			Annotations: map[string]string{
				v1alpha1.SuccessRecordedAnnotation: "true",
				v1alpha1.ProtocolRefAnnotation:     protocolRef,
			},
		},
		Spec: v1alpha1.PillarVolumeStateSpec{
			VolumeID:      id.String(),
			AgentVolumeID: plan.Volume.String(),
			AgentRef:      layers.Store.AgentRef,
			BackendType:   string(plan.Backend),
			ProtocolType:  string(plan.Protocol),
			CapacityBytes: w.size(),
			ClaimRef:      claim,
			Resolved:      &plan.Resolved,
		},
	}, nil
}

// layers reads class, store and protocol.
func (s *Server) layers(ctx context.Context, w *createRequest) (l settings.Layers, protocolRef string, err error) {
	l = settings.Layers{
		Driver: v1alpha1.DriverName, Name: w.name,
		ClassDocs: w.Documents, LocalAttach: w.LocalAttach, FSType: w.FSType, MountFlags: w.mountFlags, Block: w.block,
	}
	viaStore, viaProtocol := v1alpha1.StoreRefKey, v1alpha1.ProtocolRefKey
	if w.Class != "" {
		psc := &v1alpha1.PillarStorageClass{}
		what := named("PillarStorageClass", w.Class, v1alpha1.StorageClassKey)
		if err := s.referent(ctx, w.Class, psc, what); err != nil {
			return l, "", err
		}
		l.Class = &psc.Spec
		w.Store, w.Protocol = psc.Spec.StoreRef, psc.Spec.ProtocolRef
		viaStore, viaProtocol = "PillarStorageClass "+w.Class+" spec.storeRef", "PillarStorageClass "+w.Class+" spec.protocolRef"
	}
	store, protocol := &v1alpha1.PillarStore{}, &v1alpha1.PillarProtocol{}
	if err := s.referent(ctx, w.Store, store, named("PillarStore", w.Store, viaStore)); err != nil {
		return l, "", err
	}
	if err := s.referent(ctx, w.Protocol, protocol, named("PillarProtocol", w.Protocol, viaProtocol)); err != nil {
		return l, "", err
	}
	l.Store, l.StoreName, l.Protocol = store.Spec, store.Name, protocol.Spec
	return l, w.Protocol, checkLayout(store)
}

// referent reads what a new volume would depend on. One on its way out takes no new ones: its
// deletion was allowed because nothing needed it.
func (s *Server) referent(ctx context.Context, name string, obj client.Object, what string) error {
	if err := s.read(ctx, name, obj, csiserve.FailedPrecondition, what); err != nil {
		return err
	}
	if !obj.GetDeletionTimestamp().IsZero() {
		return csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("%s is being deleted; use another or make it again", what))
	}
	return nil
}

func named(kind, name, via string) string {
	return fmt.Sprintf("%s %q (named via %s)", kind, name, via)
}

// checkLayout refuses a store whose placement the agent does not share: a volume is never
// silently put elsewhere (api.md 2.3). The agent checks again.
func checkLayout(store *v1alpha1.PillarStore) error {
	c := meta.FindStatusCondition(store.Status.Conditions, v1alpha1.PoolDiscovered)
	if c == nil || c.Reason != v1alpha1.ReasonBackendLayoutMismatch {
		return nil
	}
	return csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("PillarStore %q: %s", store.Name, c.Message))
}

// claim reads the claim the volume is for and adds its documents to the layers, with all that
// is wrong with its annotations. Without
// the provisioner's metadata no claim layer applies, and the UID comes from the name.
func (s *Server) claim(ctx context.Context, w createRequest, l *settings.Layers) (*v1alpha1.ClaimRef, error) {
	if w.PVCName == "" || w.PVCNamespace == "" {
		if uid := ledger.ClaimUID(w.name); uid != "" {
			return &v1alpha1.ClaimRef{UID: uid}, nil
		}
		return nil, nil
	}
	pvc := &corev1.PersistentVolumeClaim{}
	key := types.NamespacedName{Namespace: w.PVCNamespace, Name: w.PVCName}
	if err := s.readKey(ctx, key, pvc, csiserve.FailedPrecondition, named("PersistentVolumeClaim", key.String(), settings.PVCNameKey)); err != nil {
		return nil, err
	}
	if uid := ledger.ClaimUID(w.name); uid != "" && uid != string(pvc.UID) {
		return nil, csiserve.As(csiserve.FailedPrecondition, fmt.Errorf(
			"volume %s is for the claim %s with UID %s, which is gone; the one of that name now has UID %s and gets a volume of its own", w.name, key, uid, pvc.UID))
	}
	own, err := settings.ParseAnnotations(pvc.Annotations)
	if bad := (settings.Problems)(nil); errors.As(err, &bad) {
		l.Bad = append(l.Bad, bad...)
	} else if err != nil {
		return nil, err
	}
	l.VolumeDocs, l.Import = own.Documents, own.Import
	return &v1alpha1.ClaimRef{UID: string(pvc.UID), Namespace: pvc.Namespace, Name: pvc.Name}, nil
}

// unfit adds to what is wrong already that the protocol cannot serve the capabilities.
func unfit(bad settings.Problems, kind transport.Kind, caps []*csi.VolumeCapability) error {
	if err := fit(kind, caps...); err != nil {
		bad = append(bad, &settings.FieldError{Key: "volume_capabilities", Why: err.Error()})
	}
	if len(bad) == 0 {
		return nil
	}
	return bad
}
