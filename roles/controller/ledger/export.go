package ledger

import (
	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// HasExport tells whether the record's export is to be kept (block.md B-130).
func HasExport(v *v1alpha1.PillarVolumeState) bool {
	switch Phase(v) {
	case v1alpha1.PhaseReady, v1alpha1.PhaseCreatePartial:
		return !v.Status.Deleting
	}
	return false
}

// Desired is the export the record wants, with the authority to set it, both from this
// one read (block.md B-53). ok is false without an exportSpec: nothing is guessed.
func Desired(v *v1alpha1.PillarVolumeState) (item agentrpc.Item, ok bool) {
	spec := v.Status.ExportSpec
	if spec == nil {
		return agentrpc.Item{}, false
	}
	e := transport.Export{
		Kind:              transport.Kind(v.Spec.ProtocolType),
		Volume:            v.Spec.AgentVolumeID,
		Portal:            transport.Portal{Address: spec.BindAddress, Port: uint16(spec.Port)},
		ACL:               spec.ACLEnabled,
		Initiators:        initiators(v),
		Disabled:          v.Status.LocalAttachNode != "",
		InCapsuleDataSize: spec.InCapsuleDataSize,
	}
	if m := spec.MaxDataTransferSize; m != nil {
		bytes := int32(*m)
		e.MaxDataTransferSize = &bytes
	}
	return agentrpc.Item{
		Token:   Token(v),
		Backend: storage.BackendType(v.Spec.BackendType),
		Export:  e,
		Ready:   Phase(v) == v1alpha1.PhaseReady,
	}, true
}

// initiators are those of publications that are neither local nor on their way out
// (block.md B-131).
func initiators(v *v1alpha1.PillarVolumeState) []string {
	var ids []string
	for _, p := range v.Status.PublishedNodes {
		if !p.Local && !p.Revoking {
			ids = append(ids, p.InitiatorID)
		}
	}
	return ids
}
