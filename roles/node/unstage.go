package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/roles/node/staging"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/mount"
)

// NodeUnstageVolume unmounts and disconnects a volume. It succeeds only when the kernel
// has neither a mount nor a connection of it; a step that fails keeps the record.
func (s *Server) NodeUnstageVolume(ctx context.Context, req *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, stagingPath := req.GetVolumeId(), req.GetStagingTargetPath()
	if err := required("volume_id", id); err != nil {
		return nil, err
	}
	if err := path("staging_target_path", stagingPath); err != nil {
		return nil, err
	}
	if err := s.unstage(ctx, id, filepath.Clean(stagingPath)); err != nil {
		return nil, fmt.Errorf("unstage %s: %w", id, err)
	}
	return &csi.NodeUnstageVolumeResponse{}, nil
}

func (s *Server) unstage(ctx context.Context, id, stagingPath string) error {
	v, err := s.look(ctx, id, nil)
	if err != nil {
		return err
	}
	if !v.recorded {
		return s.unstageUnknown(ctx, id, stagingPath, v.table)
	}
	if v.rec.StagingPath != stagingPath {
		return precondition("it is staged at %s, not at %s", v.rec.StagingPath, stagingPath)
	}
	at := point(v.rec.Access, stagingPath)
	if pod, ok := mountsOf(v).Except(at).Top(); ok {
		return precondition("it is still published at %s", pod.Path)
	}
	if err := s.bare(v, at); err != nil {
		return err
	}
	if v.rec.Access == staging.Block {
		if err := remove(at); err != nil {
			return err
		}
	}
	if err := s.release(ctx, v.rec.Source, v.rec.Access); err != nil {
		return err
	}
	return s.records.Remove(id)
}

// mountsOf answers every mount that shows the volume, at whatever path and of whatever
// part: a subdirectory keeps the device as busy as all of it.
func mountsOf(v view) mount.Table {
	var all mount.Table
	staged, isStaged := v.table.At(point(v.rec.Access, v.rec.StagingPath)).Top()
	for _, e := range v.table {
		part := v.connected && e.Major == v.dev.Major && e.Minor == v.dev.Minor
		node := v.connected && shows(e, staging.Block, v.dev)
		dead := isStaged && !v.connected && e.Same(staged)
		if part || node || dead {
			all = append(all, e)
		}
	}
	return all
}

// release disconnects a source once nothing is mounted from it and nothing holds its
// device. Cached writes reach the target first.
func (s *Server) release(ctx context.Context, source attach.Source, access staging.Access) error {
	dev, connected, err := s.attach.Find(ctx, source)
	if err != nil {
		return err
	}
	if connected {
		table, err := s.mounts.Table()
		if err != nil {
			return err
		}
		if e, ok := mountsOf(view{dev: dev, connected: true, table: table}).Top(); ok {
			return fmt.Errorf("%s is still mounted at %s", dev.Path, e.Path)
		}
		err = s.probe.Flush(ctx, dev.Path, access == staging.Filesystem)
		if errors.Is(err, storage.ErrBusy) { // U-35: a mount in another namespace, most likely
			return csiserve.As(csiserve.Internal, fmt.Errorf("%s is unmounted here, but something still holds it; it stays connected: %w", dev.Path, err))
		}
		if err != nil {
			return err
		}
	}
	return s.attach.Detach(ctx, source)
}

// unstageUnknown is an unstage without a record (block.md B-365): success means that
// nothing of the volume is here.
func (s *Server) unstageUnknown(ctx context.Context, id, stagingPath string, table mount.Table) error {
	for _, access := range []staging.Access{staging.Filesystem, staging.Block} {
		if at := point(access, stagingPath); len(table.At(at)) > 0 {
			return csiserve.As(csiserve.Internal, fmt.Errorf(
				"stage state for %s is missing but %s is still mounted; refusing to report the volume unstaged", id, at))
		}
	}
	source, ok := attach.Derived(id)
	if !ok {
		csiserve.Unchanged(ctx)
		return nil
	}
	claimant, err := s.records.Claimant(source)
	if err != nil {
		return err
	}
	if claimant != "" {
		csiserve.Unchanged(ctx)
		return nil
	}
	return s.release(ctx, source, staging.Filesystem)
}
