package controller

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/csiserve"
)

// ValidateVolumeCapabilities confirms capabilities every block volume has, without any
// agent call (block.md B-126).
func (s *Server) ValidateVolumeCapabilities(ctx context.Context, req *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if req.GetVolumeId() == "" {
		return nil, csiserve.Invalid("volume_id", "is empty")
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, csiserve.Invalid("volume_capabilities", "is empty; at least one capability is required")
	}
	if _, err := s.required(ctx, req.GetVolumeId()); err != nil {
		return nil, err
	}
	for _, c := range req.GetVolumeCapabilities() {
		if err := checkCapability(c); err != nil {
			return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
		}
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext:      req.GetVolumeContext(),
		VolumeCapabilities: req.GetVolumeCapabilities(),
		Parameters:         req.GetParameters(),
	}}, nil
}
