package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"go.uber.org/zap"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage"
)

// DeleteVolume removes the backend and ends the lifecycle. An absent one is success; one
// that any target serves is ErrPrecondition.
//
// What does not carry the lifecycle's mark is spared. If the lifecycle created nothing here,
// that is success: its create never arrived, or was refused (block.md B-122, B-217). If it
// did, its volume was taken away or lost its mark, and ErrForeign asks for a human.
func (s *server) DeleteVolume(ctx context.Context, req *agentpb.DeleteVolumeRequest) (*agentpb.DeleteVolumeResponse, error) {
	id, err := storage.ParseVolumeID(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	p, err := s.volumes.poolToRemove(storage.BackendType(req.GetBackend()), id)
	if err != nil {
		return nil, err
	}
	tok, op := agentrpc.Token(req.Token), fencing.Op{Class: fencing.Destroy, Delete: true}
	var found error
	err = s.fence.Do(ctx, id.String(), tok, op, func(ctx context.Context) error {
		if found = s.checkUnused(ctx, p, id.Name, storage.Owner(tok.UID)); found == nil {
			found = p.Delete(ctx, id.Name, storage.Owner(tok.UID))
		}
		return foreign(found)
	})
	if errors.Is(err, fencing.ErrForeign) {
		err = found // FailedPrecondition: of a delete, not of a create
	}
	if err != nil {
		return nil, err
	}
	if found != nil {
		s.log.Warn("backend spared", zap.String(telemetry.KeyPVName, id.Name), zap.Error(found))
	}
	return &agentpb.DeleteVolumeResponse{}, nil
}

// linker is a backend whose devices can be there without their path.
type linker interface {
	// Link makes the path lead to the device; fs.ErrNotExist: there is none.
	Link(ctx context.Context, name string) error
}

// checkUnused asks the kernel's targets for the volume's device by number, whatever name
// an export has (block.md B-268). A volume without a device node cannot be exported; what is
// not the owner's is not removed, in use or not.
func (s *server) checkUnused(ctx context.Context, p *pool, name string, owner storage.Owner) error {
	vol, err := p.Inspect(ctx, name)
	if errors.Is(err, storage.ErrNotFound) || err == nil && !owner.Owns(vol.Owner) {
		return nil
	}
	if err != nil {
		return err
	}
	if l, ok := p.Backend.(linker); ok {
		if err := l.Link(ctx, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	major, minor, err := s.volumes.devices.Numbers(vol.DevicePath)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.configfs(); err != nil {
		return err
	}
	for _, t := range s.targets {
		users, err := t.Users(ctx, major, minor)
		if err != nil {
			return err
		}
		if len(users) > 0 {
			return fmt.Errorf("%w: device %s is exported by %s", storage.ErrPrecondition, vol.DevicePath, strings.Join(users, ", "))
		}
	}
	return nil
}
