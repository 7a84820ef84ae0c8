package node

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/staging"
)

// NodeGetVolumeStats answers bytes and inodes of a filesystem, or the size of a device. A
// path that does not show the volume is NotFound (block.md B-383).
func (s *Server) NodeGetVolumeStats(ctx context.Context, req *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	id, at := req.GetVolumeId(), req.GetVolumePath()
	if err := required("volume_id", id); err != nil {
		return nil, err
	}
	if err := required("volume_path", at); err != nil {
		return nil, err
	}
	usage, err := s.usage(ctx, id, filepath.Clean(at))
	if err != nil {
		return nil, fmt.Errorf("stats of %s at %s: %w", id, at, err)
	}
	return &csi.NodeGetVolumeStatsResponse{Usage: usage}, nil
}

func (s *Server) usage(ctx context.Context, id, at string) ([]*csi.VolumeUsage, error) {
	v, err := s.look(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	if !v.recorded {
		return nil, csiserve.As(csiserve.NotFound, fmt.Errorf("it is not staged here"))
	}
	if at == v.rec.StagingPath {
		at = point(v.rec.Access, at)
	}
	top, ok := v.table.At(at).Top()
	switch {
	case !ok || !ours(v, top):
		return nil, csiserve.As(csiserve.NotFound, fmt.Errorf("it is not mounted there"))
	case !v.connected:
		return nil, fmt.Errorf("its device is gone")
	case v.rec.Access == staging.Block:
		return s.deviceUsage(v)
	}
	return s.filesystemUsage(ctx, at)
}

func (s *Server) deviceUsage(v view) ([]*csi.VolumeUsage, error) {
	d, err := s.probe.Open(v.dev.Path)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: d.Size()}}, nil
}

func (s *Server) filesystemUsage(ctx context.Context, at string) ([]*csi.VolumeUsage, error) {
	if err := s.probe.Alive(ctx, at); err != nil {
		return nil, err
	}
	st, err := s.probe.Statfs(ctx, at)
	if err != nil {
		return nil, err
	}
	block := int64(st.Frsize)
	return []*csi.VolumeUsage{
		{
			Unit: csi.VolumeUsage_BYTES, Total: int64(st.Blocks) * block,
			Available: int64(st.Bavail) * block, Used: int64(st.Blocks-st.Bfree) * block,
		},
		{
			Unit: csi.VolumeUsage_INODES, Total: int64(st.Files),
			Available: int64(st.Ffree), Used: int64(st.Files - st.Ffree),
		},
	}, nil
}
