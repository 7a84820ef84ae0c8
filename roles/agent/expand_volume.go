package agent

import (
	"context"
	"errors"
	"fmt"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// ExpandVolume grows the backend and shows hosts its size, which they use without
// interruption. A backend that is as large already is success, and hosts are told again:
// nothing shows whether an earlier call came that far (block.md B-454). It is not gated.
func (s *server) ExpandVolume(ctx context.Context, req *agentpb.ExpandVolumeRequest) (*agentpb.ExpandVolumeResponse, error) {
	id, err := storage.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if req.GetSizeBytes() <= 0 {
		return nil, fmt.Errorf("%w: size_bytes %d is not positive", storage.ErrInvalid, req.GetSizeBytes())
	}
	t, err := s.targets.find(transport.Kind(req.GetProtocol()))
	if err != nil {
		return nil, err
	}
	p, err := s.volumes.poolOf(storage.BackendType(req.GetBackend()), id)
	if err != nil {
		return nil, err
	}
	var vol storage.Volume
	tok, op := agentrpc.Token(req.Token), fencing.Op{Class: fencing.Grant}
	err = s.fence.Do(ctx, id.String(), tok, op, func(ctx context.Context) (err error) {
		if vol, err = p.Expand(ctx, id.Name, storage.Owner(tok.UID), req.GetSizeBytes()); err != nil {
			return err
		}
		return s.showSize(ctx, t, vol)
	})
	if err != nil {
		return nil, err
	}
	return &agentpb.ExpandVolumeResponse{SizeBytes: vol.Bytes}, nil
}

// showSize has the volume's export, if there is one, look at its device again. A kernel
// without the protocol has no export; an unmounted configfs proves nothing.
func (s *server) showSize(ctx context.Context, t target, vol storage.Volume) error {
	if err := s.configfs(); err != nil {
		return err
	}
	err := t.Available(ctx)
	if errors.Is(err, transport.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.Resize(ctx, vol.ID.String(), vol.DevicePath)
}
