package agentrpc

import (
	"fmt"
	"math"
	"net/netip"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// Token reads a call's authority. An absent token is the zero one, which fencing rejects.
func Token(t *agentpb.FenceToken) fencing.Token {
	return fencing.Token{UID: t.GetVolumeUid(), Generation: t.GetGeneration()}
}

func fromToken(t fencing.Token) *agentpb.FenceToken {
	return &agentpb.FenceToken{VolumeUid: t.UID, Generation: t.Generation}
}

// Spec reads what a create asks for. It is storage.ErrInvalid if the volume ID is
// malformed, the size is not positive, the parameters are missing or of another backend,
// or they name another pool than the ID (block.md B-203). A backend unknown here is
// storage.ErrUnsupported.
func Spec(r *agentpb.CreateVolumeRequest) (storage.Spec, error) {
	id, err := storage.ParseVolumeID(r.GetVolumeId())
	if err != nil {
		return storage.Spec{}, err
	}
	if r.GetSizeBytes() <= 0 {
		return storage.Spec{}, fmt.Errorf("%w: size_bytes %d is not positive", storage.ErrInvalid, r.GetSizeBytes())
	}
	s := storage.Spec{ID: id, Bytes: r.GetSizeBytes(), Backend: storage.BackendType(r.GetParameters().GetType())}
	pool, err := parameters(&s, r.GetParameters())
	if err != nil {
		return storage.Spec{}, err
	}
	if pool != id.Pool {
		return storage.Spec{}, fmt.Errorf("%w: parameters name pool %q, volume ID %s names %q", storage.ErrInvalid, pool, id, id.Pool)
	}
	return s, nil
}

// parameters fills in the member of the spec's backend and answers the pool it names.
func parameters(s *storage.Spec, p *agentpb.BackendParameters) (pool string, err error) {
	switch s.Backend {
	case storage.LVMLV:
		if l := p.GetLvm(); l != nil {
			s.LVM = &storage.LVMParams{VolumeGroup: l.VolumeGroup, ThinPool: l.ThinPool, Mode: l.Mode}
			return l.VolumeGroup, nil
		}
	case storage.ZFSZvol, storage.ZFSDataset:
		if z := p.GetZfs(); z != nil {
			s.ZFS = &storage.ZFSParams{Pool: z.Pool, ParentDataset: z.ParentDataset, Properties: z.Properties}
			return z.Pool, nil
		}
	case "":
	default:
		return "", fmt.Errorf("%w: backend %q", storage.ErrUnsupported, s.Backend)
	}
	return "", fmt.Errorf("%w: parameters for backend %q are missing", storage.ErrInvalid, s.Backend)
}

func fromSpec(s storage.Spec) *agentpb.BackendParameters {
	p := &agentpb.BackendParameters{Type: string(s.Backend)}
	if s.LVM != nil {
		p.Lvm = &agentpb.LVMParameters{VolumeGroup: s.LVM.VolumeGroup, ThinPool: s.LVM.ThinPool, Mode: s.LVM.Mode}
	}
	if s.ZFS != nil {
		p.Zfs = &agentpb.ZFSParameters{Pool: s.ZFS.Pool, ParentDataset: s.ZFS.ParentDataset, Properties: s.ZFS.Properties}
	}
	return p
}

// Export reads the desired export of a volume. It is transport.ErrInvalid if it is
// missing, names no protocol, or its portal is none. The address gets its one canonical
// form: two spellings would count as two ports.
func Export(volume string, e *agentpb.ExportSpec) (transport.Export, error) {
	if e.GetProtocol() == "" {
		return transport.Export{}, fmt.Errorf("%w: export of %s names no protocol", transport.ErrInvalid, volume)
	}
	port, err := portOf(e.GetPort())
	if err != nil {
		return transport.Export{}, fmt.Errorf("%w: export of %s: %w", transport.ErrInvalid, volume, err)
	}
	address, err := netip.ParseAddr(e.GetBindAddress())
	if err != nil {
		return transport.Export{}, fmt.Errorf("%w: bind address of %s: %w", transport.ErrInvalid, volume, err)
	}
	return transport.Export{
		Kind:                transport.Kind(e.GetProtocol()),
		Volume:              volume,
		DevicePath:          e.GetDevicePath(),
		Portal:              transport.Portal{Address: address.Unmap().String(), Port: port},
		ACL:                 e.GetAclEnabled(),
		Initiators:          e.GetInitiators(),
		Disabled:            e.GetDisabled(),
		InCapsuleDataSize:   e.InCapsuleDataSize,
		MaxDataTransferSize: e.MaxDataTransferSize,
	}, nil
}

func fromExport(backend storage.BackendType, e transport.Export) *agentpb.ExportSpec {
	return &agentpb.ExportSpec{
		Protocol:            string(e.Kind),
		Backend:             string(backend),
		DevicePath:          e.DevicePath,
		BindAddress:         e.Portal.Address,
		Port:                int32(e.Portal.Port),
		AclEnabled:          e.ACL,
		Initiators:          e.Initiators,
		Disabled:            e.Disabled,
		InCapsuleDataSize:   e.InCapsuleDataSize,
		MaxDataTransferSize: e.MaxDataTransferSize,
	}
}

// ExportInfo writes an export as the kernel has it.
func ExportInfo(t transport.Target) *agentpb.ExportInfo {
	return &agentpb.ExportInfo{
		TargetId:   t.ID,
		Address:    t.Portal.Address,
		Port:       int32(t.Portal.Port),
		VolumeRef:  t.Ref,
		Enabled:    t.Enabled,
		AclEnabled: t.ACL,
		Initiators: t.Initiators,
	}
}

func toTarget(i *agentpb.ExportInfo) (transport.Target, error) {
	port, err := portOf(i.GetPort())
	if err != nil {
		return transport.Target{}, fmt.Errorf("the agent's answer about %s: %w", i.GetTargetId(), err)
	}
	return transport.Target{
		ID:         i.GetTargetId(),
		Portal:     transport.Portal{Address: i.GetAddress(), Port: port},
		Ref:        i.GetVolumeRef(),
		Enabled:    i.GetEnabled(),
		ACL:        i.GetAclEnabled(),
		Initiators: i.GetInitiators(),
	}, nil
}

// portOf reads a TCP port, which the wire has no type for.
func portOf(n int32) (uint16, error) {
	if n < 0 || n > math.MaxUint16 {
		return 0, fmt.Errorf("port %d is none: want 0 to %d", n, math.MaxUint16)
	}
	return uint16(n), nil
}

// Pool writes a pool as its backend discovered it.
func Pool(p storage.Pool) *agentpb.DiscoveredPool {
	return &agentpb.DiscoveredPool{
		Name:           p.Name,
		Type:           p.Type,
		TotalBytes:     p.Capacity.Total,
		AvailableBytes: p.Capacity.Available,
		ThinPool:       p.ThinPool,
		ParentDataset:  p.Parent,
	}
}

func toPool(p *agentpb.DiscoveredPool) storage.Pool {
	return storage.Pool{
		Name:     p.GetName(),
		Type:     p.GetType(),
		Capacity: storage.Capacity{Total: p.GetTotalBytes(), Available: p.GetAvailableBytes()},
		ThinPool: p.GetThinPool(),
		Parent:   p.GetParentDataset(),
	}
}
