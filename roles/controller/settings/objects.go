package settings

import (
	"net/netip"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/zfs"
)

// The schema of the custom resources holds the same rules; these are for an object that is
// older than its schema, and for names in StorageClass parameters, which have none.

// ObjectName tells whether a cluster-wide object could have the name. Any other must not
// get into the path of a request to the API server.
func ObjectName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// objectName refuses what names no object; whether one is named at all is the schema's.
func objectName(at place, name string) Problems {
	if name == "" || ObjectName(name) {
		return nil
	}
	return Problems{at.problem(name, "is no name of a Kubernetes object", "use lower-case letters, digits, - and ., at most 253 bytes")}
}

// CheckAgent answers everything wrong with an agent, with paths from "spec".
func CheckAgent(agent v1alpha1.PillarAgentSpec) (bad Problems) {
	spec := place{path: "spec."}
	if ref := agent.NodeRef; ref != nil {
		bad = objectName(spec.in("nodeRef.name"), ref.Name)
		if _, err := netip.ParsePrefix(ref.AddressSelector); err != nil && ref.AddressSelector != "" {
			bad = append(bad, spec.in("nodeRef.addressSelector").problem(ref.AddressSelector, "is not a CIDR", "write it like 10.0.0.0/24 or fd00::/64"))
		}
	}
	if e := agent.External; e != nil && !hostName(e.Address) {
		bad = append(bad, spec.in("external.address").problem(e.Address, "is neither an IP address nor a host name",
			"write it without brackets and port; the port is external.port"))
	}
	return bad
}

// numeric are host names only an IPv4 address could have (RFC 1123 section 2.1).
var numeric = regexp.MustCompile(`(^|\.)[0-9]+$`)

// hostName tells whether an agent outside of the cluster could be reached by the name.
func hostName(s string) bool {
	if ip, err := netip.ParseAddr(s); err == nil {
		return ip.Zone() == ""
	}
	return ObjectName(strings.ToLower(s)) && !numeric.MatchString(s)
}

// CheckStore answers everything wrong with a store, with paths from "spec".
func CheckStore(store v1alpha1.PillarStoreSpec) Problems {
	spec := place{path: "spec."}
	bad := objectName(spec.in("agentRef"), store.AgentRef)
	refuse := func(path, value string, err error) {
		if err != nil && value != "" {
			bad = append(bad, spec.in("backend."+path).problem(value, why(err, storage.ErrInvalid), "name it as it is on the storage node"))
		}
	}
	if z := store.Backend.ZFS; z != nil {
		refuse("zfs.pool", z.Pool, zfs.Config{Pool: z.Pool}.Check())
		refuse("zfs.parentDataset", z.ParentDataset, zfs.Config{Pool: "p", ParentDataset: z.ParentDataset}.Check())
	}
	if l := store.Backend.LVM; l != nil {
		refuse("lvm.volumeGroup", l.VolumeGroup, lvm.CheckGroup(l.VolumeGroup))
		refuse("lvm.thinPool", l.ThinPool, lvm.CheckName(l.ThinPool))
	}
	return append(bad, checkProperties(spec.in("backend.zfs.properties."), store.Backend.ZFS, nil)...)
}
