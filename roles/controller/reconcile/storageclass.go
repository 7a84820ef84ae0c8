package reconcile

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// fstypeParameter is what the provisioner turns into the capability's fs_type.
const fstypeParameter = "csi.storage.k8s.io/fstype"

// className is the StorageClass's name: asked for, or the object's own.
func className(psc *v1alpha1.PillarStorageClass) string {
	if name := psc.Spec.StorageClass.Name; name != "" {
		return name
	}
	return psc.Name
}

// desiredClass is the StorageClass a PillarStorageClass stands for (api.md 2.5).
func desiredClass(psc *v1alpha1.PillarStorageClass, protocol v1alpha1.Protocol) *storagev1.StorageClass {
	reclaim := corev1.PersistentVolumeReclaimPolicy(psc.Spec.StorageClass.ReclaimPolicy)
	binding := storagev1.VolumeBindingMode(psc.Spec.StorageClass.VolumeBindingMode)
	fstype := v1alpha1.FSTypeExt4
	if protocol.NFS != nil {
		fstype = v1alpha1.FSTypeNFS
	}
	var options []string
	if fs := psc.Spec.Filesystem; fs != nil {
		if fs.FSType != "" {
			fstype = fs.FSType
		}
		if fs.MountOptions != nil {
			options = *fs.MountOptions
		}
	}
	expansion := psc.Spec.StorageClass.AllowVolumeExpansion
	if expansion == nil { // files never grow (api.md 2.5)
		expansion = new(psc.Spec.CSIDriver == v1alpha1.DriverName)
	}
	owner := metav1.NewControllerRef(psc, v1alpha1.GroupVersion.WithKind("PillarStorageClass"))
	return &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: className(psc), OwnerReferences: []metav1.OwnerReference{*owner}},
		Provisioner:          psc.Spec.CSIDriver,
		ReclaimPolicy:        &reclaim,
		VolumeBindingMode:    &binding,
		AllowVolumeExpansion: expansion,
		MountOptions:         options,
		Parameters: map[string]string{
			v1alpha1.StorageClassKey: psc.Name,
			fstypeParameter:          fstype,
		},
	}
}

// generate makes the StorageClass so, and says in StorageClassCreated whether it is.
func (r *classes) generate(ctx context.Context, psc *v1alpha1.PillarStorageClass, p *v1alpha1.PillarProtocol, s status) {
	want := desiredClass(psc, p.Spec.Protocol)
	if err := r.apply(ctx, psc, want); err != nil {
		s.no(v1alpha1.StorageClassCreated, v1alpha1.ReasonStorageClassError, err.Error())
		return
	}
	psc.Status.StorageClassName = want.Name
	s.yes(v1alpha1.StorageClassCreated, v1alpha1.ReasonCreated, "")
}

func (r *classes) apply(ctx context.Context, psc *v1alpha1.PillarStorageClass, want *storagev1.StorageClass) error {
	have := &storagev1.StorageClass{}
	err := r.direct.Get(ctx, types.NamespacedName{Name: want.Name}, have)
	switch {
	case apierrors.IsNotFound(err):
		return r.create(ctx, psc, want)
	case err != nil:
		return fmt.Errorf("read StorageClass %s: %w", want.Name, err)
	case !metav1.IsControlledBy(have, psc):
		return fmt.Errorf("StorageClass %s exists and is not owned by PillarStorageClass %s; delete it or choose another spec.storageClass.name", want.Name, psc.Name)
	case !sameImmutable(have, want):
		return r.recreate(ctx, psc, have, want)
	case equality.Semantic.DeepEqual(have.AllowVolumeExpansion, want.AllowVolumeExpansion):
		return nil
	}
	old := have.DeepCopy()
	have.AllowVolumeExpansion = want.AllowVolumeExpansion
	if err := r.cached.Patch(ctx, have, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("patch StorageClass %s: %w", want.Name, err)
	}
	return nil
}

// sameImmutable compares the fields Kubernetes never lets change.
func sameImmutable(have, want *storagev1.StorageClass) bool {
	return have.Provisioner == want.Provisioner &&
		maps.Equal(have.Parameters, want.Parameters) &&
		equality.Semantic.DeepEqual(have.ReclaimPolicy, want.ReclaimPolicy) &&
		equality.Semantic.DeepEqual(have.VolumeBindingMode, want.VolumeBindingMode) &&
		equality.Semantic.DeepEqual(have.MountOptions, want.MountOptions)
}

// carryOver is what a StorageClass keeps over being made anew.
type carryOver struct {
	Labels            map[string]string             `json:"labels,omitempty"`
	Annotations       map[string]string             `json:"annotations,omitempty"`
	AllowedTopologies []corev1.TopologySelectorTerm `json:"allowedTopologies,omitempty"`
}

// recreate saves what users put on the StorageClass before it deletes it, so that a crash
// in between loses nothing.
func (r *classes) recreate(ctx context.Context, psc *v1alpha1.PillarStorageClass, have, want *storagev1.StorageClass) error {
	raw, err := json.Marshal(carryOver{have.Labels, have.Annotations, have.AllowedTopologies})
	if err != nil {
		return fmt.Errorf("save StorageClass %s: %w", have.Name, err)
	}
	if err := r.annotate(ctx, psc, string(raw)); err != nil {
		return err
	}
	if err := r.cached.Delete(ctx, have, client.Preconditions{UID: &have.UID}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete StorageClass %s: %w", have.Name, err)
	}
	return r.create(ctx, psc, want)
}

func (r *classes) create(ctx context.Context, psc *v1alpha1.PillarStorageClass, want *storagev1.StorageClass) error {
	if saved := psc.Annotations[v1alpha1.CarryOverAnnotation]; saved != "" {
		var keep carryOver
		if err := json.Unmarshal([]byte(saved), &keep); err != nil {
			return fmt.Errorf("annotation %s: %w", v1alpha1.CarryOverAnnotation, err)
		}
		want.Labels, want.Annotations, want.AllowedTopologies = keep.Labels, keep.Annotations, keep.AllowedTopologies
	}
	if err := r.cached.Create(ctx, want); err != nil {
		return fmt.Errorf("create StorageClass %s: %w", want.Name, err)
	}
	return r.annotate(ctx, psc, "")
}

// annotate sets or, with an empty value, removes the carry-over annotation. It patches a
// copy, so that conditions set on psc in memory stay.
func (r *classes) annotate(ctx context.Context, psc *v1alpha1.PillarStorageClass, value string) error {
	if psc.Annotations[v1alpha1.CarryOverAnnotation] == value {
		return nil
	}
	old := psc.DeepCopy()
	changed := psc.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	changed.Annotations[v1alpha1.CarryOverAnnotation] = value
	if value == "" {
		delete(changed.Annotations, v1alpha1.CarryOverAnnotation)
	}
	if err := r.cached.Patch(ctx, changed, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("annotate PillarStorageClass %s: %w", psc.Name, err)
	}
	psc.Annotations = changed.Annotations
	return nil
}

// remove deletes the generated StorageClass if it is this object's own.
func (r *classes) remove(ctx context.Context, psc *v1alpha1.PillarStorageClass) error {
	have := &storagev1.StorageClass{}
	err := r.direct.Get(ctx, types.NamespacedName{Name: className(psc)}, have)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(have, psc) {
		return nil
	}
	err = r.cached.Delete(ctx, have, client.Preconditions{UID: &have.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete StorageClass %s: %w", have.Name, err)
	}
	return nil
}
