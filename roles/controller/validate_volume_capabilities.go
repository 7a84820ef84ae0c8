package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// ValidateVolumeCapabilities confirms what a volume of that protocol can do, without any
// agent call. What it cannot do is no error but a message (block.md B-126).
func (s *Server) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, csiserve.Invalid("volume_id", "is empty")
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, csiserve.Invalid("volume_capabilities", "is empty; at least one capability is required")
	}
	v, err := s.required(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if err := fit(transport.Kind(v.Spec.ProtocolType), req.GetVolumeCapabilities()...); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
	}}, nil
}
