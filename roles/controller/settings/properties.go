package settings

import (
	"regexp"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// ownedByDriver are the ZFS properties no layer may set: the agent sets them, or they
// decide what others see of a volume. rdonly and volblock are other names of readonly and
// volblocksize: zfs(8) takes a property's column name, too. keylocation names a file of
// the storage node, or an address.
var ownedByDriver = map[string][]string{
	v1alpha1.ZFSVolumeTypeZvol: {"keylocation", "rdonly", "readonly", "volmode", "volsize"},
	v1alpha1.ZFSVolumeTypeDataset: { // files.md F-13
		"canmount", "jailed", "keylocation", "mountpoint", "quota", "rdonly", "readonly", "refquota",
		"sharenfs", "sharesmb", "volblock", "volblocksize", "volmode", "volsize", "zoned",
	},
}

// propertyName is what zfsprops(7) lets a property be called; a user property has a colon.
var propertyName = regexp.MustCompile(`^[a-z0-9][a-z0-9:+._-]{0,255}$`)

// checkProperties refuses properties of the layer, or of the store itself if there is
// none, that are no property or pillar's. Everything else is passed to ZFS as it is.
func checkProperties(at place, store *v1alpha1.ZFSBackend, layer *v1alpha1.ZFSOverrides) (bad Problems) {
	if store == nil {
		return nil
	}
	properties := store.Properties
	if layer != nil {
		properties = layer.Properties
	}
	volumeType := v1alpha1.ZFSVolumeTypeZvol
	replace(&volumeType, store.VolumeType)
	for _, name := range sorted(properties) {
		value := properties[name]
		switch at := at.in(name); {
		case !propertyName.MatchString(name):
			bad = append(bad, at.problem(value, "is no name of a ZFS property", "use lower-case letters, digits and : + . _ -"))
		case slices.Contains(ownedByDriver[volumeType], name) || strings.HasPrefix(name, v1alpha1.DriverName):
			bad = append(bad, at.problem(value, "is set by pillar", "remove it"))
		case strings.ContainsFunc(value, control):
			bad = append(bad, at.problem(value, "contains a control character", "remove it"))
		}
	}
	return bad
}

func control(r rune) bool { return r < ' ' || r == 0x7f }
