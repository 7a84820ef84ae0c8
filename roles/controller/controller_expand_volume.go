package controller

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// ControllerExpandVolume has the agent grow the volume under a new generation and records
// the size it then has. The node always has something left to do: its kernel must see the
// size, with raw block too. A crash in between is repaired by the same call again.
func (s *Server) ControllerExpandVolume(ctx context.Context, req *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	want, err := parseExpand(req)
	if err != nil {
		return nil, err
	}
	v, err := s.required(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	size, err := s.expand(ctx, v, want)
	if err != nil {
		return nil, s.answer(v.Spec.AgentRef, err)
	}
	if want.limit > 0 && size > want.limit {
		return nil, csiserve.As(csiserve.OutOfRange, fmt.Errorf("volume %s has %d bytes, the limit is %d", v.Name, size, want.limit))
	}
	return &csi.ControllerExpandVolumeResponse{
		CapacityBytes:         size,
		NodeExpansionRequired: v.Spec.ProtocolType != string(transport.NFS),
	}, nil
}

// expandRequest is a size in bytes; a limit of 0 is none.
type expandRequest struct {
	required, limit int64
}

// parseExpand checks the request (block.md B-125, B-451).
func parseExpand(req *csi.ControllerExpandVolumeRequest) (expandRequest, error) {
	size := req.GetCapacityRange()
	w := expandRequest{required: size.GetRequiredBytes(), limit: size.GetLimitBytes()}
	switch {
	case req.GetVolumeId() == "":
		return w, csiserve.Invalid("volume_id", "is empty")
	case size == nil:
		return w, csiserve.Invalid("capacity_range", "is missing")
	case w.required <= 0:
		return w, csiserve.Invalid("capacity_range.required_bytes", fmt.Sprintf("%d is not positive", w.required))
	case w.limit < 0:
		return w, csiserve.Invalid("capacity_range.limit_bytes", fmt.Sprintf("%d is negative", w.limit))
	case w.limit > 0 && w.limit < w.required:
		return w, csiserve.As(csiserve.OutOfRange, fmt.Errorf("limit_bytes %d is less than required_bytes %d", w.limit, w.required))
	}
	return w, nil
}

// expand answers the volume's size afterwards, as the record has it.
func (s *Server) expand(ctx context.Context, v *v1alpha1.PillarVolumeState, want expandRequest) (int64, error) {
	a, err := s.agent(ctx, v, csiserve.NotFound)
	if err != nil {
		return 0, err
	}
	v, err = s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if err := expandable(now); err != nil {
			return false, err
		}
		ledger.Advance(now)
		return true, nil
	})
	if err != nil {
		return 0, err
	}
	size, err := a.client.ExpandVolume(ctx, ledger.Token(v), a.backend, a.kind, a.volume, want.required)
	if err != nil {
		return 0, a.failed("expand volume", err)
	}
	switch {
	case size == 0: // the agent does not say
		size = want.required
	case size < want.required: // block.md N-46: recorded, it would shrink the volume
		return 0, csiserve.As(csiserve.Internal, a.failed("expand volume", fmt.Errorf("the agent reports %d bytes, asked for were %d", size, want.required)))
	}
	attempt := v.Status.PublicationGeneration
	_, err = s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if err := sameAttempt(now, attempt); err != nil {
			return false, err
		}
		changed := now.Status.CapacityBytes != size
		now.Status.CapacityBytes = size
		return changed, nil
	})
	return size, err
}

// expandable says why the volume cannot grow (block.md B-125, B-461).
func expandable(v *v1alpha1.PillarVolumeState) error {
	if src := v.Spec.LVMSource; src != nil && src.PreserveOriginal {
		return csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("cannot expand volume %s: it preserves an adopted logical volume", v.Name))
	}
	return settled(v, "expand")
}
