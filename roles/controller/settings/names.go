package settings

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/zfs"
	"github.com/pillar-csi/pillar/transport"
)

// TargetPrefix begins every derived NQN; that of an IQN is as long (block.md B-20, B-21).
const (
	TargetPrefix = "nqn.2026-01.com.bhyoo.pillar-csi:"
	maxTarget    = 223 // bytes: NVMe Base spec and RFC 7143
)

// TargetSuffix is what NQN and IQN make of an agent volume ID. It is not injective: a/b.c
// and a.b/c meet (B-23).
func TargetSuffix(agentVolumeID string) string { return strings.ReplaceAll(agentVolumeID, "/", ".") }

// iqnSuffix is what RFC 3722 leaves of ASCII. It maps upper case to lower case, so that
// two volumes could become one target; we refuse it instead (U-1).
var iqnSuffix = regexp.MustCompile(`^[a-z0-9.:-]+$`)

// checkName refuses a volume name that its backend or its target could not carry (B-14,
// B-24, B-218, B-226, U-1).
func checkName(backend storage.BackendType, parent string, kind transport.Kind, id storage.VolumeID) (bad Problems) {
	refuse := func(value, why, fix string) {
		bad = append(bad, &FieldError{Key: "name", Value: value, Why: why, Fix: fix})
	}
	check := zfs.Config{Pool: id.Pool, ParentDataset: parent}.CheckName
	if backend == storage.LVMLV {
		check = lvm.CheckName
	}
	if err := check(id.Name); err != nil {
		refuse("", why(err, storage.ErrInvalid), "choose another name")
	}
	suffix := TargetSuffix(id.String())
	if n := len(TargetPrefix) + len(suffix); kind != transport.NFS && n > maxTarget {
		refuse(suffix, fmt.Sprintf("makes a target name of %d bytes", n), fmt.Sprintf("at most %d are allowed", maxTarget))
	}
	if kind == transport.ISCSI && !iqnSuffix.MatchString(suffix) {
		refuse(suffix, "is not allowed in an iSCSI name (RFC 3722)", "use lower-case letters, digits and - . : in pool and volume name")
	}
	return bad
}
