package settings

import (
	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// NotYet names the settings that this version cannot serve and a later one will, each with
// what to do. The API has them already; a volume with one would be promised and not kept.
func NotYet(r v1alpha1.Resolved) (all []string) {
	refuse := func(what, fix string) { all = append(all, what+" is not supported yet; "+fix) }
	if r.LocalAttach {
		refuse("localAttach: true", "set it to false")
	}
	if r.Protocol.ISCSI != nil {
		refuse("protocol iscsi", "use a PillarProtocol with nvmeofTcp")
	}
	if r.Protocol.NFS != nil {
		refuse("protocol nfs", "use a block store with nvmeofTcp")
	}
	return all
}

// ClassNotYet is NotYet of the volumes of a class that fits its protocol, and of its driver.
func ClassNotYet(class v1alpha1.PillarStorageClassSpec, protocol v1alpha1.PillarProtocolSpec) []string {
	all := NotYet(v1alpha1.Resolved{Protocol: protocol.Protocol, LocalAttach: class.LocalAttach})
	if who := driver(class.CSIDriver); who == v1alpha1.FileDriverName {
		all = append(all, "driver "+who+" is not supported yet; use "+v1alpha1.DriverName)
	}
	return all
}
