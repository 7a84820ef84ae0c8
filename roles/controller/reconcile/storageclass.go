package reconcile

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/chap"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// Where the node finds CHAP credentials (api.md 2.5).
const (
	stageSecretParameter    = "csi.storage.k8s.io/node-stage-secret-name"
	stageNamespaceParameter = "csi.storage.k8s.io/node-stage-secret-namespace"
)

// className is the StorageClass's name: asked for, or the object's own.
func className(psc *v1alpha1.PillarStorageClass) string {
	if name := psc.Spec.StorageClass.Name; name != "" {
		return name
	}
	return psc.Name
}

// desiredClass is the StorageClass a PillarStorageClass stands for. Overrides are no part
// of it: they are read at each CreateVolume (api.md 2.5).
func desiredClass(psc *v1alpha1.PillarStorageClass, protocol v1alpha1.Protocol, namespace string) *storagev1.StorageClass {
	reclaim := corev1.PersistentVolumeReclaimPolicy(psc.Spec.StorageClass.ReclaimPolicy)
	binding := storagev1.VolumeBindingMode(psc.Spec.StorageClass.VolumeBindingMode)
	expansion := psc.Spec.StorageClass.AllowVolumeExpansion
	if expansion == nil { // files never grow (api.md 2.5)
		expansion = new(psc.Spec.CSIDriver == v1alpha1.DriverName)
	}
	fstype, options := classFilesystem(psc, protocol)
	parameters := map[string]string{v1alpha1.StorageClassKey: psc.Name, settings.FSTypeKey: fstype}
	if method, secret := chap.Of(protocol); method != v1alpha1.AuthNone {
		parameters[stageSecretParameter], parameters[stageNamespaceParameter] = secret, namespace
	}
	owner := metav1.NewControllerRef(psc, v1alpha1.GroupVersion.WithKind("PillarStorageClass"))
	return &storagev1.StorageClass{
		ObjectMeta:           metav1.ObjectMeta{Name: className(psc), OwnerReferences: []metav1.OwnerReference{*owner}},
		Provisioner:          psc.Spec.CSIDriver,
		ReclaimPolicy:        &reclaim,
		VolumeBindingMode:    &binding,
		AllowVolumeExpansion: expansion,
		MountOptions:         options,
		Parameters:           parameters,
	}
}

func classFilesystem(psc *v1alpha1.PillarStorageClass, protocol v1alpha1.Protocol) (fstype string, options []string) {
	fstype = v1alpha1.FSTypeExt4
	if protocol.NFS != nil {
		fstype = v1alpha1.FSTypeNFS
	}
	if fs := psc.Spec.Filesystem; fs != nil {
		fstype = cmp.Or(fs.FSType, fstype)
		if fs.MountOptions != nil {
			options = *fs.MountOptions
		}
	}
	return fstype, options
}

// generate makes the StorageClass so, and says in StorageClassCreated whether it is.
// Without a protocol nobody can tell what it should hold; one that exists stays.
func (r *classes) generate(ctx context.Context, psc *v1alpha1.PillarStorageClass, p *v1alpha1.PillarProtocol, s status) {
	if p == nil {
		return
	}
	want := desiredClass(psc, p.Spec.Protocol, r.namespace)
	exists, err := r.apply(ctx, psc, want, s)
	switch {
	case err != nil:
		s.no(v1alpha1.StorageClassCreated, v1alpha1.ReasonStorageClassError, err.Error())
	case exists:
		psc.Status.StorageClassName = want.Name
		s.yes(v1alpha1.StorageClassCreated, v1alpha1.ReasonCreated, fmt.Sprintf("StorageClass %q exists", want.Name))
	default: // made as soon as store and protocol are Ready
		meta.RemoveStatusCondition(s.conditions, v1alpha1.StorageClassCreated)
	}
}

// apply brings the StorageClass in line and tells whether there is one.
func (r *classes) apply(ctx context.Context, psc *v1alpha1.PillarStorageClass, want *storagev1.StorageClass, s status) (exists bool, err error) {
	have := &storagev1.StorageClass{}
	err = r.direct.Get(ctx, types.NamespacedName{Name: want.Name}, have)
	if apierrors.IsNotFound(err) {
		return r.create(ctx, psc, want, s)
	}
	if err != nil {
		return false, fmt.Errorf("read StorageClass %s: %w", want.Name, err)
	}
	if !metav1.IsControlledBy(have, psc) {
		return false, fmt.Errorf("StorageClass %s exists and is not owned by PillarStorageClass %s; delete it, or create another class with another spec.storageClass.name", want.Name, psc.Name)
	}
	if !have.DeletionTimestamp.IsZero() {
		return false, fmt.Errorf("StorageClass %s is being deleted and held by finalizers %v; it is made again once it is gone", want.Name, have.Finalizers)
	}
	if fields := fixed(have, want); len(fields) > 0 {
		return r.recreate(ctx, psc, have, want, fields, s)
	}
	if err := r.adjust(ctx, psc, have, want, s); err != nil {
		return false, err
	}
	return true, r.annotate(ctx, psc, "", s) // left by a crash after the new one was made
}

// fixed names the fields that differ and that Kubernetes never lets change.
func fixed(have, want *storagev1.StorageClass) (fields []string) {
	if have.Provisioner != want.Provisioner {
		fields = append(fields, "provisioner")
	}
	if !maps.Equal(have.Parameters, want.Parameters) {
		fields = append(fields, "parameters")
	}
	if !equality.Semantic.DeepEqual(have.ReclaimPolicy, want.ReclaimPolicy) {
		fields = append(fields, "reclaimPolicy")
	}
	if !equality.Semantic.DeepEqual(have.VolumeBindingMode, want.VolumeBindingMode) {
		fields = append(fields, "volumeBindingMode")
	}
	return fields
}

// adjust patches the fields that Kubernetes lets change.
func (r *classes) adjust(ctx context.Context, psc *v1alpha1.PillarStorageClass, have, want *storagev1.StorageClass, s status) error {
	old := have.DeepCopy()
	have.AllowVolumeExpansion, have.MountOptions = want.AllowVolumeExpansion, want.MountOptions
	if equality.Semantic.DeepEqual(have, old) {
		return nil
	}
	if err := r.cached.Patch(ctx, have, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("patch StorageClass %s: %w", want.Name, err)
	}
	reason := eventUpdated
	if s.stood(v1alpha1.StorageClassCreated) {
		reason = eventDriftReverted
	}
	r.tell(psc, corev1.EventTypeNormal, reason, v1alpha1.StorageClassCreated,
		fmt.Sprintf("allowVolumeExpansion and mountOptions of StorageClass %s are as the PillarStorageClass says", want.Name))
	return nil
}

// carryOver is what a StorageClass keeps over being made anew.
type carryOver struct {
	Labels            map[string]string             `json:"labels,omitempty"`
	Annotations       map[string]string             `json:"annotations,omitempty"`
	AllowedTopologies []corev1.TopologySelectorTerm `json:"allowedTopologies,omitempty"`
}

// recreate saves what users put on the StorageClass before it deletes it, so that a crash
// in between loses nothing: create reads what was saved from the API server.
func (r *classes) recreate(ctx context.Context, psc *v1alpha1.PillarStorageClass, have, want *storagev1.StorageClass, fields []string, s status) (bool, error) {
	raw, err := json.Marshal(carryOver{have.Labels, have.Annotations, have.AllowedTopologies})
	if err != nil {
		return false, fmt.Errorf("save StorageClass %s: %w", have.Name, err)
	}
	if err := r.annotate(ctx, psc, string(raw), s); err != nil {
		return false, err
	}
	if err := r.delete(ctx, have); err != nil {
		return false, err
	}
	r.tell(psc, corev1.EventTypeNormal, eventRecreated, v1alpha1.StorageClassCreated, fmt.Sprintf(
		"StorageClass %s is made anew, because its %s cannot be changed; labels, annotations and allowedTopologies are kept", have.Name, strings.Join(fields, ", ")))
	return r.create(ctx, psc, want, s)
}

// create makes the StorageClass with what recreate saved. Without that it waits for store
// and protocol to be Ready, which a StorageClass that existed before does not.
func (r *classes) create(ctx context.Context, psc *v1alpha1.PillarStorageClass, want *storagev1.StorageClass, s status) (exists bool, err error) {
	saved, err := r.saved(ctx, psc, s)
	if err != nil {
		return false, err
	}
	if saved == "" && !(isTrue(*s.conditions, v1alpha1.StoreReady) && isTrue(*s.conditions, v1alpha1.ProtocolValid)) {
		return false, nil
	}
	if saved != "" {
		var keep carryOver
		if err := json.Unmarshal([]byte(saved), &keep); err != nil {
			return false, fmt.Errorf("annotation %s: %w; remove it", v1alpha1.CarryOverAnnotation, err)
		}
		want.Labels, want.Annotations, want.AllowedTopologies = keep.Labels, keep.Annotations, keep.AllowedTopologies
	}
	if err := r.cached.Create(ctx, want); err != nil {
		return false, fmt.Errorf("create StorageClass %s: %w", want.Name, err)
	}
	if saved == "" && s.stood(v1alpha1.StorageClassCreated) {
		r.tell(psc, corev1.EventTypeNormal, eventRecreated, v1alpha1.StorageClassCreated,
			fmt.Sprintf("StorageClass %s was deleted by somebody else and is made again; delete the PillarStorageClass to be rid of it", want.Name))
	}
	return true, r.annotate(ctx, psc, "", s)
}

// saved reads the carry-over annotation from the API server: the cache may be older than
// the deletion it was saved for.
func (r *classes) saved(ctx context.Context, psc *v1alpha1.PillarStorageClass, s status) (string, error) {
	live := &v1alpha1.PillarStorageClass{}
	if err := r.direct.Get(ctx, client.ObjectKeyFromObject(psc), live); err != nil {
		return "", fmt.Errorf("read PillarStorageClass %s: %w", psc.Name, err)
	}
	if live.UID != psc.UID {
		return "", fmt.Errorf("PillarStorageClass %s was replaced by another of that name", psc.Name)
	}
	for _, o := range []client.Object{s.obj, s.old} {
		o.SetAnnotations(maps.Clone(live.Annotations))
	}
	return live.Annotations[v1alpha1.CarryOverAnnotation], nil
}

// annotate sets or, with an empty value, removes the carry-over annotation. It patches a
// copy, so that conditions set in memory stay.
func (r *classes) annotate(ctx context.Context, psc *v1alpha1.PillarStorageClass, value string, s status) error {
	if psc.Annotations[v1alpha1.CarryOverAnnotation] == value {
		return nil
	}
	old := psc.DeepCopy()
	changed := psc.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.CarryOverAnnotation, value)
	if value == "" {
		delete(changed.Annotations, v1alpha1.CarryOverAnnotation)
	}
	if err := r.cached.Patch(ctx, changed, client.MergeFrom(old)); err != nil {
		return fmt.Errorf("annotate PillarStorageClass %s: %w", psc.Name, err)
	}
	for _, o := range []client.Object{s.obj, s.old} { // what finish compares and locks
		o.SetAnnotations(maps.Clone(changed.Annotations))
		o.SetResourceVersion(changed.ResourceVersion)
	}
	return nil
}

// remove deletes the generated StorageClass if it is this object's own.
func (r *classes) remove(ctx context.Context, psc *v1alpha1.PillarStorageClass) error {
	if !settings.ObjectName(className(psc)) { // so it was never made
		return nil
	}
	have := &storagev1.StorageClass{}
	err := r.direct.Get(ctx, types.NamespacedName{Name: className(psc)}, have)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if !metav1.IsControlledBy(have, psc) {
		return nil
	}
	return r.delete(ctx, have)
}

func (r *classes) delete(ctx context.Context, sc *storagev1.StorageClass) error {
	err := r.cached.Delete(ctx, sc, client.Preconditions{UID: &sc.UID})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete StorageClass %s: %w", sc.Name, err)
	}
	return nil
}
