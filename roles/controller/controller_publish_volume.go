package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"go.uber.org/zap"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// ControllerPublishVolume reserves the volume for a node in the record, then has the
// agent admit the node's initiator. A crash in between leaves the reservation: the volume
// stays closed to others until that node is unpublished (block.md B-97).
func (s *Server) ControllerPublishVolume(ctx context.Context, req *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	want, err := parsePublish(req)
	if err != nil {
		return nil, err
	}
	v, err := s.required(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := fit(transport.Kind(v.Spec.ProtocolType), req.GetVolumeCapability()); err != nil {
		return nil, csiserve.Invalid("volume_capability", err.Error())
	}
	if want.InitiatorID, err = s.initiator(ctx, v, want.NodeID); err != nil {
		return nil, err
	}
	if err := publishable(v); err != nil { // checked again where it counts
		return nil, err
	}
	if err := s.servable(ctx, v); err != nil {
		return nil, err
	}
	a, err := s.agent(ctx, v, csiserve.NotFound)
	if err != nil {
		return nil, err
	}
	digests, err := s.digests(ctx, v)
	if err != nil {
		return nil, err
	}
	if v, err = s.reservation(ctx, v, want); err != nil {
		return nil, s.answer(a.name, err)
	}
	if err := a.allow(ctx, v, want.NodeID); err != nil {
		return nil, s.answer(a.name, err)
	}
	return &csi.ControllerPublishVolumeResponse{PublishContext: digests}, nil
}

// servable is nil if a host can be given access to the volume: its Secret is usable now,
// whatever it was when the volume was made (block.md B-262), and this version knows how.
func (s *Server) servable(ctx context.Context, v *v1alpha1.PillarVolumeState) error {
	if v.Spec.Resolved == nil {
		return nil
	}
	if err := s.credentials(ctx, v.Spec.Resolved.Protocol); err != nil {
		return err
	}
	return reachable(v.Spec.Resolved)
}

// parsePublish checks the request; the initiator is not known yet.
func parsePublish(req *csi.ControllerPublishVolumeRequest) (v1alpha1.PublishedNode, error) {
	none := v1alpha1.PublishedNode{}
	switch {
	case req.GetVolumeId() == "":
		return none, csiserve.Invalid("volume_id", "is empty")
	case req.GetNodeId() == "":
		return none, csiserve.Invalid("node_id", "is empty")
	case req.GetVolumeCapability() == nil:
		return none, csiserve.Invalid("volume_capability", "is missing")
	}
	if err := checkCapability(req.GetVolumeCapability(), allKinds...); err != nil {
		return none, csiserve.Invalid("volume_capability", err.Error())
	}
	return v1alpha1.PublishedNode{
		NodeID:     req.GetNodeId(),
		AccessMode: req.GetVolumeCapability().GetAccessMode().GetMode().String(),
		Readonly:   req.GetReadonly(),
	}, nil
}

// reservation commits the publication, or finds it committed.
func (s *Server) reservation(ctx context.Context, v *v1alpha1.PillarVolumeState, want v1alpha1.PublishedNode) (*v1alpha1.PillarVolumeState, error) {
	return s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if err := publishable(now); err != nil {
			return false, err
		}
		exists, err := admitPublication(now.Status.PublishedNodes, want)
		if err != nil || exists {
			return false, err
		}
		now.Status.PublishedNodes = append(now.Status.PublishedNodes, want)
		ledger.Advance(now)
		return true, nil
	})
}

// publishable says why the volume cannot be published to any node now (block.md B-87). A
// lost exportSpec is not guessed: its ACL would lock the node out or let everyone in
// (B-591, B-592).
func publishable(v *v1alpha1.PillarVolumeState) error {
	err := settled(v, "publish")
	if err == nil && v.Status.ExportSpec == nil {
		err = csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("cannot publish volume %s: %s: its record has no status.exportSpec; add it once, as it was", v.Name, v1alpha1.ReasonExportSpecMissing))
	}
	return err
}

// adopted tells whether the volume is somebody's data that was there before.
func adopted(v *v1alpha1.PillarVolumeState) bool {
	return v.Spec.ImportedFrom != "" || v.Spec.LVMSource != nil || v.Spec.FilesystemAdoption != nil
}

// settled says why nothing but its creation or its end can be done to the volume now.
func settled(v *v1alpha1.PillarVolumeState, operation string) error {
	why := ""
	switch phase := ledger.Phase(v); {
	case v.Status.Deleting:
		why = "it is being deleted"
	case phase != v1alpha1.PhaseReady:
		why = "its phase is " + string(phase)
	case adopted(v) && !v.Status.ImportAcquired:
		why = "it was never adopted"
	default:
		return nil
	}
	return csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("cannot %s volume %s: %s", operation, v.Name, why))
}

// allow has the agent admit the initiator recorded for the node. It is called with ACL
// off too, so that the agent's mark advances (block.md B-98).
func (a *agent) allow(ctx context.Context, v *v1alpha1.PillarVolumeState, node string) error {
	for _, p := range v.Status.PublishedNodes {
		if p.NodeID != node {
			continue
		}
		err := a.client.AllowInitiator(ctx, ledger.Token(v), a.backend, a.kind, a.volume, p.InitiatorID, v.Status.ExportSpec.ACLEnabled)
		if err != nil {
			return a.failed("allow node "+node+" on volume", err)
		}
	}
	return nil
}

// digests are the publish context: the digest flags of the volume's protocol object as it
// is now (block.md B-88). An object that is gone means digests off.
func (s *Server) digests(ctx context.Context, v *v1alpha1.PillarVolumeState) (map[string]string, error) {
	name := v.Annotations[v1alpha1.ProtocolRefAnnotation]
	if transport.Kind(v.Spec.ProtocolType) != transport.NVMeTCP || name == "" {
		return nil, nil
	}
	p := &v1alpha1.PillarProtocol{}
	err := s.read(ctx, name, p, csiserve.NotFound, fmt.Sprintf("PillarProtocol %q", name))
	if csiserve.CodeOf(err) == csiserve.NotFound {
		s.log.Warn("protocol object is gone, digests are off", zap.String("pillar_csi.volume.id", v.Spec.VolumeID), zap.String("protocol", name))
		return nil, nil
	}
	if err != nil || p.Spec.Protocol.NVMeOFTCP == nil {
		return nil, err
	}
	c := contextKeys{}
	if p.Spec.Protocol.NVMeOFTCP.HdrDigest {
		c.set("nvmeof-hdr-digest", "true")
	}
	if p.Spec.Protocol.NVMeOFTCP.DataDigest {
		c.set("nvmeof-data-digest", "true")
	}
	return c, nil
}
