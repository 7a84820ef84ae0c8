package settings

import (
	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// CheckClass answers everything wrong with a class, with paths from "spec". store and
// protocol are what it refers to; nil skips the rules that need them.
func CheckClass(class v1alpha1.PillarStorageClassSpec, store *v1alpha1.PillarStoreSpec, protocol *v1alpha1.PillarProtocolSpec) (bad Problems) {
	spec := place{path: "spec."}
	bad = append(bad, objectName(spec.in("storeRef"), class.StoreRef)...)
	bad = append(bad, objectName(spec.in("protocolRef"), class.ProtocolRef)...)
	bad = append(bad, objectName(spec.in("storageClass.name"), class.StorageClass.Name)...)
	var kind transport.Kind
	if protocol != nil {
		kind = ProtocolKind(protocol.Protocol)
	}
	who := driver(class.CSIDriver)
	if store != nil && protocol != nil {
		if err := Compatible(who, store.Backend, protocol.Protocol); err != nil {
			bad = append(bad, spec.in("protocolRef").problem(class.ProtocolRef, why(err, storage.ErrPrecondition), "name a PillarProtocol that fits"))
		}
	}
	if o := class.Overrides; o != nil && o.Backend != nil && store != nil {
		at := spec.in(backendPath)
		b := store.Backend.DeepCopy()
		bad = append(bad, applyBackend(b, at, o.Backend)...)
		if b.LVM != nil && o.Backend.LVM != nil && b.LVM.ProvisioningMode == v1alpha1.ProvisioningThin && b.LVM.ThinPool == "" {
			bad = append(bad, at.in("lvm.provisioningMode").problem(v1alpha1.ProvisioningThin, "requires the PillarStore to set lvm.thinPool", "set it there, or use linear"))
		}
		if who != v1alpha1.FileDriverName && o.Backend.ZFS != nil {
			bad = append(bad, checkProperties(at.in("zfs.properties."), store.Backend.ZFS, o.Backend.ZFS)...)
		}
	}
	if o := class.Overrides; o != nil && o.Protocol != nil && protocol != nil {
		bad = append(bad, applyProtocol(protocol.Protocol.DeepCopy(), spec.in(protocolPath), o.Protocol)...)
	}
	bad = append(bad, checkLocalAttach(spec.in("localAttach"), who, kind, class.LocalAttach)...)
	return append(bad, checkClassFilesystem(spec.in("filesystem."), class, who, kind)...)
}

func checkClassFilesystem(at place, class v1alpha1.PillarStorageClassSpec, who string, kind transport.Kind) (bad Problems) {
	if class.Filesystem == nil {
		return nil
	}
	fs := &traced{Filesystem: v1alpha1.Filesystem{FSType: v1alpha1.FSTypeExt4}}
	adopts := who == v1alpha1.FileDriverName
	if adopts || kind == transport.NFS {
		kind, fs.FSType = transport.NFS, v1alpha1.FSTypeNFS
	}
	fs.apply(at, class.Filesystem)
	bad = fs.check(kind)
	if fs.MountOptions != nil {
		bad = append(bad, checkMount(fs.mount, *fs.MountOptions, kind, adopts && class.LocalAttach)...)
	}
	return bad
}
