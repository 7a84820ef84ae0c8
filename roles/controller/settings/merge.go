package settings

import (
	"fmt"
	"maps"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// place is where something was written: an object, annotation or parameter, and the path
// inside.
type place struct{ key, path string }

func (p place) in(path string) place { return place{p.key, p.path + path} }

func (p place) problem(value, why, fix string) *FieldError {
	return &FieldError{Key: p.key, Path: p.path, Value: value, Why: why, Fix: fix}
}

// layer is one set of overrides and where it came from.
type layer[T any] struct {
	place
	value *T
}

// overrides collects layers 2 and 3, lowest first, leaving absent ones out.
func overrides[T any](l Layers, key string, class place, decode func(key, doc string) (*T, Problems),
	fromClass func(*v1alpha1.Overrides) *T, fromDocs func(Documents) string,
) (layers []layer[T], bad Problems) {
	if l.Class != nil && l.Class.Overrides != nil {
		if o := fromClass(l.Class.Overrides); o != nil {
			layers = append(layers, layer[T]{class, o})
		}
	}
	for _, doc := range []string{fromDocs(l.ClassDocs), fromDocs(l.VolumeDocs)} {
		if doc == "" {
			continue
		}
		o, more := decode(key, doc)
		if bad = append(bad, more...); len(more) == 0 {
			layers = append(layers, layer[T]{place{key: key}, o})
		}
	}
	return layers, bad
}

// Places outside of documents, whose places are their keys.
var (
	inClass    = place{"PillarStorageClass", "spec."}
	inStore    = place{"PillarStore", "spec."}
	inMountOps = place{"StorageClass", "mountOptions"} // they arrive as mount flags of the capability
)

const (
	backendPath  = "overrides.backend."
	protocolPath = "overrides.protocol."
)

// backend is the store's backend under the overrides of class and claim.
func (l Layers) backend() (v1alpha1.Backend, Problems) {
	b := *l.Store.Backend.DeepCopy()
	layers, bad := overrides(l, v1alpha1.BackendKey, inClass.in(backendPath), decodeBackend,
		func(o *v1alpha1.Overrides) *v1alpha1.BackendOverrides { return o.Backend },
		func(d Documents) string { return d.Backend })
	if !l.files() { // nothing is made, so no property applies (files.md F-141)
		bad = append(bad, checkProperties(inStore.in("backend.zfs.properties."), b.ZFS, nil)...)
	}
	for _, layer := range layers {
		bad = append(bad, applyBackend(&b, layer.place, layer.value)...)
		if !l.files() {
			bad = append(bad, checkProperties(layer.in("zfs.properties."), b.ZFS, layer.value.ZFS)...)
		}
	}
	if b.LVM != nil && b.LVM.ProvisioningMode == v1alpha1.ProvisioningThin && b.LVM.ThinPool == "" {
		bad = append(bad, &FieldError{
			Key: v1alpha1.BackendKey, Path: "lvm.provisioningMode thin",
			Why: fmt.Sprintf("requires PillarStore %q to set lvm.thinPool", l.StoreName), Fix: "set it there, or use linear",
		})
	}
	return b, bad
}

func applyBackend(b *v1alpha1.Backend, at place, o *v1alpha1.BackendOverrides) Problems {
	switch {
	case o.ZFS != nil && b.ZFS != nil:
		if len(o.ZFS.Properties) > 0 && b.ZFS.Properties == nil {
			b.ZFS.Properties = map[string]string{}
		}
		maps.Copy(b.ZFS.Properties, o.ZFS.Properties)
		return nil
	case o.LVM != nil && b.LVM != nil:
		replace(&b.LVM.ProvisioningMode, o.LVM.ProvisioningMode)
		return nil
	case o.Directory != nil && b.Directory != nil:
		return nil
	}
	member := "directory"
	switch {
	case o.ZFS != nil:
		member = "zfs"
	case o.LVM != nil:
		member = "lvm"
	}
	return misfit(at, member, string(BackendType(*b)), "backend")
}

// protocol is the base protocol under the overrides of class and claim, with the transfer
// size resolved. Digests are read at each publish and not recorded (api.md 2.4).
func (l Layers) protocol() (v1alpha1.Protocol, Problems) {
	p := *l.Protocol.Protocol.DeepCopy()
	layers, bad := overrides(l, v1alpha1.ProtocolKey, inClass.in(protocolPath), decodeProtocol,
		func(o *v1alpha1.Overrides) *v1alpha1.ProtocolOverrides { return o.Protocol },
		func(d Documents) string { return d.Protocol })
	for _, layer := range layers {
		bad = append(bad, applyProtocol(&p, layer.place, layer.value)...)
	}
	if n := p.NVMeOFTCP; n != nil {
		size := MaxDataTransferSize(n)
		n.MaxDataTransferSize = &size
		n.HdrDigest, n.DataDigest = false, false
	}
	return p, bad
}

func applyProtocol(p *v1alpha1.Protocol, at place, o *v1alpha1.ProtocolOverrides) Problems {
	switch {
	case o.NVMeOFTCP != nil && p.NVMeOFTCP != nil:
		to, from := &p.NVMeOFTCP.NVMeTunables, o.NVMeOFTCP
		replacePtr(&to.MaxQueueSize, from.MaxQueueSize)
		replacePtr(&to.InCapsuleDataSize, from.InCapsuleDataSize)
		replacePtr(&to.MaxDataTransferSize, from.MaxDataTransferSize)
		replacePtr(&to.CtrlLossTmo, from.CtrlLossTmo)
		replacePtr(&to.ReconnectDelay, from.ReconnectDelay)
		return nil
	case o.ISCSI != nil && p.ISCSI != nil:
		to, from := &p.ISCSI.ISCSITunables, o.ISCSI
		replacePtr(&to.LoginTimeout, from.LoginTimeout)
		replacePtr(&to.ReplacementTimeout, from.ReplacementTimeout)
		replacePtr(&to.NoopOutInterval, from.NoopOutInterval)
		replacePtr(&to.NoopOutTimeout, from.NoopOutTimeout)
		return nil
	case o.NFS != nil && p.NFS != nil:
		return nil
	}
	member := "nfs"
	switch {
	case o.NVMeOFTCP != nil:
		member = "nvmeofTcp"
	case o.ISCSI != nil:
		member = "iscsi"
	}
	return misfit(at, member, string(ProtocolKind(*p)), "protocol")
}

func misfit(at place, member, token, what string) Problems {
	return Problems{at.in(member).problem("", "overrides do not apply to a "+token+" "+what, "remove "+member)}
}

func replace[T comparable](to *T, from T) {
	var unset T
	if from != unset {
		*to = from
	}
}

func replacePtr[T any](to **T, from *T) {
	if from != nil {
		*to = from
	}
}
