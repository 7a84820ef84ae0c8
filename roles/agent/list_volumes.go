package agent

import (
	"context"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
)

// ListVolumes answers the volumes of a pool that pillar could have made. It asserts no
// ownership.
func (s *server) ListVolumes(ctx context.Context, req *agentpb.ListVolumesRequest) (*agentpb.ListVolumesResponse, error) {
	p, err := s.volumes.find(storage.BackendType(req.GetBackend()), req.GetPool())
	if err != nil {
		return nil, err
	}
	list, err := p.List(ctx)
	if err != nil {
		return nil, err
	}
	exported, err := s.exported(ctx)
	if err != nil {
		return nil, err
	}
	resp := &agentpb.ListVolumesResponse{}
	for _, v := range list {
		resp.Volumes = append(resp.Volumes, &agentpb.VolumeInfo{
			VolumeId: v.ID.String(), SizeBytes: v.Bytes, DevicePath: v.DevicePath, Exported: exported(v.ID.String()),
		})
	}
	return resp, nil
}

// exported tells which volumes have an export in the kernel.
func (s *server) exported(ctx context.Context) (func(volume string) bool, error) {
	list, err := s.kernelExports(ctx)
	if err != nil {
		return nil, err
	}
	ids := map[string]bool{}
	for _, e := range list {
		ids[e.ID] = true
	}
	return func(volume string) bool {
		for _, t := range s.targets {
			if id, err := t.ID(volume); err == nil && ids[id] {
				return true
			}
		}
		return false
	}, nil
}
