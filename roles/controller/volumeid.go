package controller

import (
	"fmt"
	"regexp"
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

// matches is FailedPrecondition if the ID contradicts the record found under its name.
func (id volumeID) matches(v *v1alpha1.PillarVolumeState) error {
	if got := id.String(); got != v.Spec.VolumeID {
		return csiserve.As(csiserve.FailedPrecondition,
			fmt.Errorf("volume ID %s contradicts the record of volume %s, which is %s", got, v.Name, v.Spec.VolumeID))
	}
	return nil
}

// targetPrefix begins every derived NQN and IQN; both have the same length (B-20, B-21).
const (
	targetPrefix = "nqn.2026-01.com.bhyoo.pillar-csi:"
	maxTarget    = 223 // bytes: NVMe Base spec and RFC 7143
)

// targetSuffix is what NQN and IQN make of an agent volume ID. It is not injective: a/b.c
// and a.b/c meet (B-23).
func targetSuffix(agentVolumeID string) string { return strings.ReplaceAll(agentVolumeID, "/", ".") }

var (
	zvolName = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,255}$`)
	lvName   = regexp.MustCompile(`^[A-Za-z0-9+_.-]{1,127}$`)
	lvInfix  = regexp.MustCompile(`_cdata|_cmeta|_corig|_mlog|_mimage|_pmspare|_rimage|_rmeta|_tdata|_tmeta|_vorigin|_vdata`)
)

// checkName refuses a volume name its backend could not carry (B-14, B-24, B-218, B-226).
func checkName(backend storage.BackendType, id storage.VolumeID) error {
	name := id.Name
	legal := name != "." && name != ".."
	switch backend {
	case storage.LVMLV:
		legal = legal && lvName.MatchString(name) && !strings.HasPrefix(name, "-") &&
			!strings.HasPrefix(name, "snapshot") && !strings.HasPrefix(name, "pvmove") && !lvInfix.MatchString(name)
	default:
		legal = legal && zvolName.MatchString(name)
	}
	if !legal {
		return csiserve.Invalid("name", fmt.Sprintf("%q is no legal name of a %s volume; use letters, digits, dash and underscore", name, backend))
	}
	if n := len(targetPrefix) + len(id.String()); n > maxTarget {
		return csiserve.Invalid("name", fmt.Sprintf("%q makes a target name of %d bytes; at most %d are allowed", name, n, maxTarget))
	}
	return nil
}
