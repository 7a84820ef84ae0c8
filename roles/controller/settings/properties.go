package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/zfs"
)

// ownedByDriver are the ZFS properties no layer may set, by volume type: the agent sets
// them, or they decide what others see of a volume (files.md F-13). Second names of
// properties are among them: zfs(8) takes the name of a property's column, too.
var ownedByDriver = map[string][]string{
	v1alpha1.ZFSVolumeTypeZvol: zfs.Owned,
	v1alpha1.ZFSVolumeTypeDataset: {
		"canmount", "jailed", "keylocation", "mountpoint", "quota", "rdonly", "readonly", "refquota",
		"sharenfs", "sharesmb", "volblock", "volblocksize", "volmode", "volsize", "zoned",
	},
}

// checkProperties refuses properties of the layer, or of the store itself if there is
// none, that the storage node would refuse: recorded with a volume, they could not be mended.
func checkProperties(at place, store *v1alpha1.ZFSBackend, layer *v1alpha1.ZFSOverrides) (bad Problems) {
	if store == nil {
		return nil
	}
	properties := store.Properties
	if layer != nil {
		properties = layer.Properties
	}
	check := zfs.CheckProperty
	if store.VolumeType == v1alpha1.ZFSVolumeTypeDataset {
		check = checkDatasetProperty
	}
	for _, name := range sorted(properties) {
		value := properties[name]
		if err := check(name, value); err != nil {
			bad = append(bad, at.in(name).problem(value, why(err, storage.ErrInvalid), "remove it"))
		}
	}
	return bad
}

// checkDatasetProperty is zfs.CheckProperty for datasets, which have other owned properties
// and whose reservations are the user's.
func checkDatasetProperty(name, value string) error {
	switch {
	case slices.Contains(ownedByDriver[v1alpha1.ZFSVolumeTypeDataset], name):
		return fmt.Errorf("%w: is set by pillar", storage.ErrInvalid)
	case (name == "reservation" || name == "refreservation") && !strings.ContainsFunc(value, control):
		return nil
	}
	return zfs.CheckProperty(name, value)
}

func control(r rune) bool { return r < ' ' || r == 0x7f }
