package settings

import (
	"maps"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// backend is the store's backend under the overrides of class and claim.
func (l Layers) backend() (v1alpha1.Backend, error) {
	b := *l.Store.Backend.DeepCopy()
	layers, err := overrides(l, v1alpha1.BackendKey, decodeBackend,
		func(o *v1alpha1.Overrides) *v1alpha1.BackendOverrides { return o.Backend },
		func(d Documents) string { return d.Backend })
	if err != nil {
		return b, err
	}
	for _, layer := range layers {
		if err := applyBackend(&b, layer.key, layer.value); err != nil {
			return b, err
		}
	}
	if b.LVM != nil && b.LVM.ProvisioningMode == v1alpha1.ProvisioningThin && b.LVM.ThinPool == "" {
		return b, &FieldError{
			Key: v1alpha1.BackendKey, Path: "lvm.provisioningMode thin",
			Why: "requires PillarStore " + b.LVM.VolumeGroup + " to set lvm.thinPool",
			Fix: "set it there, or use linear",
		}
	}
	return b, nil
}

func applyBackend(b *v1alpha1.Backend, key string, o *v1alpha1.BackendOverrides) error {
	switch {
	case o.ZFS != nil && b.ZFS != nil:
		if len(o.ZFS.Properties) > 0 && b.ZFS.Properties == nil {
			b.ZFS.Properties = map[string]string{}
		}
		maps.Copy(b.ZFS.Properties, o.ZFS.Properties)
	case o.LVM != nil && b.LVM != nil:
		replace(&b.LVM.ProvisioningMode, o.LVM.ProvisioningMode)
	case o.Directory != nil && b.Directory != nil:
	default:
		return misfit(key, backendMember(o), string(BackendType(*b)), "backend")
	}
	return nil
}

// protocol is the base protocol under the overrides of class and claim, with the transfer
// size resolved. Digests are read at each publish and not recorded (api.md 2.4).
func (l Layers) protocol() (v1alpha1.Protocol, error) {
	p := *l.Protocol.Protocol.DeepCopy()
	layers, err := overrides(l, v1alpha1.ProtocolKey, decodeProtocol,
		func(o *v1alpha1.Overrides) *v1alpha1.ProtocolOverrides { return o.Protocol },
		func(d Documents) string { return d.Protocol })
	if err != nil {
		return p, err
	}
	for _, layer := range layers {
		if err := applyProtocol(&p, layer.key, layer.value); err != nil {
			return p, err
		}
	}
	if n := p.NVMeOFTCP; n != nil {
		size := MaxDataTransferSize(n)
		n.MaxDataTransferSize = &size
		n.HdrDigest, n.DataDigest = false, false
	}
	return p, nil
}

func applyProtocol(p *v1alpha1.Protocol, key string, o *v1alpha1.ProtocolOverrides) error {
	switch {
	case o.NVMeOFTCP != nil && p.NVMeOFTCP != nil:
		to, from := &p.NVMeOFTCP.NVMeTunables, o.NVMeOFTCP
		replacePtr(&to.MaxQueueSize, from.MaxQueueSize)
		replacePtr(&to.InCapsuleDataSize, from.InCapsuleDataSize)
		replacePtr(&to.MaxDataTransferSize, from.MaxDataTransferSize)
		replacePtr(&to.CtrlLossTmo, from.CtrlLossTmo)
		replacePtr(&to.ReconnectDelay, from.ReconnectDelay)
	case o.ISCSI != nil && p.ISCSI != nil:
		to, from := &p.ISCSI.ISCSITunables, o.ISCSI
		replacePtr(&to.LoginTimeout, from.LoginTimeout)
		replacePtr(&to.ReplacementTimeout, from.ReplacementTimeout)
		replacePtr(&to.NoopOutInterval, from.NoopOutInterval)
		replacePtr(&to.NoopOutTimeout, from.NoopOutTimeout)
	case o.NFS != nil && p.NFS != nil:
	default:
		return misfit(key, protocolMember(o), string(ProtocolKind(*p)), "protocol")
	}
	return nil
}

// layer is one set of overrides and where it came from.
type layer[T any] struct {
	key   string
	value *T
}

// overrides collects layers 2 and 3, lowest first, leaving absent ones out.
func overrides[T any](l Layers, key string, decode func(key, text string) (*T, error),
	fromClass func(*v1alpha1.Overrides) *T, fromDocs func(Documents) string,
) ([]layer[T], error) {
	var layers []layer[T]
	if l.Class != nil && l.Class.Overrides != nil {
		if o := fromClass(l.Class.Overrides); o != nil {
			layers = append(layers, layer[T]{"PillarStorageClass spec.overrides", o})
		}
	}
	for _, text := range []string{fromDocs(l.ClassDocs), fromDocs(l.VolumeDocs)} {
		if text == "" {
			continue
		}
		o, err := decode(key, text)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer[T]{key, o})
	}
	return layers, nil
}

func misfit(key, member, token, what string) error {
	return &FieldError{
		Key: key, Path: member,
		Why: "overrides do not apply to a " + token + " " + what,
		Fix: "remove " + member,
	}
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
