package controller

import (
	"fmt"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// volumeID is a CSI volume ID: <agent>/<protocol>/<backend>/<agent volume ID>
// (block.md B-10). It routes nothing by itself once a record exists (B-16).
type volumeID struct {
	agent    string
	protocol transport.Kind
	backend  storage.BackendType
	volume   storage.VolumeID
}

// parseVolumeID splits at the first three slashes. One that does not split was never
// issued by this driver, so ok=false means: no such volume (B-15).
func parseVolumeID(s string) (id volumeID, ok bool) {
	parts := strings.SplitN(s, "/", 4)
	if len(parts) != 4 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return volumeID{}, false
	}
	volume, err := storage.ParseVolumeID(parts[3])
	if err != nil {
		return volumeID{}, false
	}
	return volumeID{parts[0], transport.Kind(parts[1]), storage.BackendType(parts[2]), volume}, true
}

func (id volumeID) String() string {
	return strings.Join([]string{id.agent, string(id.protocol), string(id.backend), id.volume.String()}, "/")
}

// volumeName is the name CreateVolume made the volume of an ID under; an adopted volume has
// another, which only means that it takes another lock.
func volumeName(id string) string {
	if parsed, ok := parseVolumeID(id); ok {
		return parsed.volume.Name
	}
	return id
}

// matches is FailedPrecondition if the ID contradicts the record found under its name.
func (id volumeID) matches(v *v1alpha1.PillarVolumeState) error {
	if got := id.String(); got != v.Spec.VolumeID {
		return csiserve.As(csiserve.FailedPrecondition,
			fmt.Errorf("volume ID %s contradicts the record of volume %s, which is %s", got, v.Name, v.Spec.VolumeID))
	}
	return nil
}
