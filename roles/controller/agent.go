package controller

import (
	"context"
	"fmt"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// agent is the agent of one volume with everything its calls repeat.
type agent struct {
	name    string
	node    string // Kubernetes node; empty: outside of the cluster
	address string // where exports listen
	client  *agentrpc.Client

	volume  storage.VolumeID
	backend storage.BackendType
	kind    transport.Kind
}

// agent reads the volume's PillarAgent from the API server; absent is the code of a
// missing one, which is no proof of anything about the volume. No address or no
// connection is Unavailable.
func (s *Server) agent(ctx context.Context, v *v1alpha1.PillarVolumeState, absent csiserve.Code) (*agent, error) {
	id, err := storage.ParseVolumeID(v.Spec.AgentVolumeID)
	if err != nil {
		return nil, csiserve.As(csiserve.Internal, fmt.Errorf("record of volume %s: %w", v.Name, err))
	}
	pa, client, err := s.dial(ctx, v.Spec.AgentRef, absent)
	if err != nil {
		return nil, err
	}
	a := &agent{
		name: pa.Name, address: agents.Host(pa.Status.ResolvedAddress), client: client,
		volume: id, backend: storage.BackendType(v.Spec.BackendType), kind: transport.Kind(v.Spec.ProtocolType),
	}
	if pa.Spec.NodeRef != nil {
		a.node = pa.Spec.NodeRef.Name
	}
	return a, nil
}

// dial reads a PillarAgent and answers the connection to it.
func (s *Server) dial(ctx context.Context, name string, absent csiserve.Code) (*v1alpha1.PillarAgent, *agentrpc.Client, error) {
	pa := &v1alpha1.PillarAgent{}
	if err := s.read(ctx, name, pa, absent, fmt.Sprintf("PillarAgent %q", name)); err != nil {
		return nil, nil, err
	}
	client, err := s.agents.Client(pa)
	if err != nil {
		return nil, nil, csiserve.As(csiserve.Unavailable, err)
	}
	return pa, client, nil
}

// failed says which agent failed at what.
func (a *agent) failed(operation string, err error) error {
	return fmt.Errorf("agent %s: %s %s: %w", a.name, operation, a.volume, err)
}

// spec is what the agent is asked to create, from the recorded settings only.
func (a *agent) spec(v *v1alpha1.PillarVolumeState) storage.Spec {
	s := storage.Spec{ID: a.volume, Bytes: v.Spec.CapacityBytes, Backend: a.backend}
	if b := v.Spec.Resolved.Backend.LVM; b != nil {
		s.LVM = &storage.LVMParams{VolumeGroup: b.VolumeGroup, ThinPool: b.ThinPool, Mode: b.ProvisioningMode}
	}
	if b := v.Spec.Resolved.Backend.ZFS; b != nil {
		s.ZFS = &storage.ZFSParams{Pool: b.Pool, ParentDataset: b.ParentDataset, Properties: b.Properties}
	}
	return s
}

// exportSpec is the export the recorded settings ask for at the agent's address.
func (a *agent) exportSpec(v *v1alpha1.PillarVolumeState) v1alpha1.ExportSpec {
	spec := v1alpha1.ExportSpec{BindAddress: a.address}
	switch p := v.Spec.Resolved.Protocol; {
	case p.NVMeOFTCP != nil:
		spec.Port, spec.ACLEnabled = p.NVMeOFTCP.Port, p.NVMeOFTCP.ACL
		spec.InCapsuleDataSize = p.NVMeOFTCP.InCapsuleDataSize
		spec.MaxDataTransferSize = p.NVMeOFTCP.MaxDataTransferSize
	case p.ISCSI != nil:
		spec.Port, spec.ACLEnabled = p.ISCSI.Port, p.ISCSI.ACL
	}
	return spec
}
