package webhook

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// defaulter fills in what a class leaves to its store. Without it the reconciler takes the
// same default for the StorageClass, but the object does not show it.
type defaulter struct{ api client.Client }

// Default sets allowVolumeExpansion where it is unset (api.md 2.5): true for what the default
// driver makes, since zvols, logical volumes and datasets all grow; false for the file
// driver, which refuses every expansion. A store that cannot be read, or that the driver
// does not serve, leaves it unset.
func (d defaulter) Default(ctx context.Context, class *v1alpha1.PillarStorageClass) error {
	if class.Spec.StorageClass.AllowVolumeExpansion != nil {
		return nil
	}
	if class.Spec.CSIDriver == v1alpha1.FileDriverName {
		class.Spec.StorageClass.AllowVolumeExpansion = new(false)
		return nil
	}
	store := &v1alpha1.PillarStore{}
	if err := d.api.Get(ctx, client.ObjectKey{Name: class.Spec.StoreRef}, store); err != nil {
		return nil
	}
	if b := store.Spec.Backend; b.ZFS != nil || b.LVM != nil {
		class.Spec.StorageClass.AllowVolumeExpansion = new(true)
	}
	return nil
}
