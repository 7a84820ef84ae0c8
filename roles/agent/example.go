package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// The parts of an example that come from elsewhere: the name from the provisioner, the
// address from the PillarAgent (here RFC 5737's), the host NQN from a node.
const (
	exampleName  = "pvc-example"
	exampleBytes = 1 << 30
	exampleBind  = "192.0.2.10"
	exampleHost  = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000000"
)

// example has a volume made in the pool, exported and given to a node, by the calls with
// which a controller does it.
func (s *server) example(ctx context.Context, p *pool) error {
	id := storage.VolumeID{Pool: p.name, Name: exampleName}.String()
	token := func(generation int64) *agentpb.FenceToken {
		return &agentpb.FenceToken{VolumeUid: "00000000-0000-4000-8000-000000000001", Generation: generation}
	}
	_, err := s.CreateVolume(ctx, &agentpb.CreateVolumeRequest{
		Token: token(1), VolumeId: id, SizeBytes: exampleBytes, Parameters: p.parameters(),
	})
	if err != nil {
		return err
	}
	_, err = s.ExportVolume(ctx, &agentpb.ExportVolumeRequest{Token: token(1), VolumeId: id, Export: &agentpb.ExportSpec{
		Protocol: string(transport.NVMeTCP), Backend: string(p.backend), BindAddress: exampleBind, AclEnabled: true,
	}})
	if err != nil {
		return err
	}
	_, err = s.AllowInitiator(ctx, &agentpb.AllowInitiatorRequest{
		Token: token(2), VolumeId: id, Backend: string(p.backend), Protocol: string(transport.NVMeTCP),
		InitiatorId: exampleHost, AclEnabled: true,
	})
	return err
}

func (p *pool) parameters() *agentpb.BackendParameters {
	all := &agentpb.BackendParameters{Type: string(p.backend)}
	switch {
	case p.backend == storage.ZFSZvol:
		all.Zfs = &agentpb.ZFSParameters{Pool: p.name, ParentDataset: p.parent}
	case p.mode == "thin":
		all.Lvm = &agentpb.LVMParameters{VolumeGroup: p.name, ThinPool: p.thinPool, Mode: p.mode}
	default:
		all.Lvm = &agentpb.LVMParameters{VolumeGroup: p.name, Mode: p.mode}
	}
	return all
}
