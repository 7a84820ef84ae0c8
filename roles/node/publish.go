package node

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/staging"
	"github.com/pillar-csi/pillar/storage/mount"
)

// NodePublishVolume binds a staged volume to a pod's target path. A read-only Block target
// is read-only by the container runtime: a mount flag does not stop writes to a device.
func (s *Server) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	want, err := parsePublish(req)
	if err != nil {
		return nil, err
	}
	if err := s.publish(ctx, want); err != nil {
		return nil, fmt.Errorf("publish %s at %s: %w", want.volumeID, want.target, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

func (s *Server) publish(ctx context.Context, want publishRequest) error {
	v, err := s.look(ctx, want.volumeID, nil)
	if err != nil {
		return err
	}
	switch {
	case !v.recorded:
		return precondition("it is not staged")
	case v.rec.StagingPath != want.staging:
		return precondition("it is staged at %s, not at %s", v.rec.StagingPath, want.staging)
	case v.rec.Access != want.access:
		return precondition("it is staged as %s", v.rec.Access)
	}
	if err := s.proveMounted(ctx, v, want.access, want.staging); err != nil {
		return err
	}
	want.readOnly = want.readOnly || v.rec.ReadOnly
	at := point(want.access, want.staging)
	staged, _ := v.table.At(at).Top()
	there, err := published(v.table.At(want.target), staged, want.readOnly)
	if err != nil {
		return err
	}
	if there {
		csiserve.Unchanged(ctx)
		return nil
	}
	if err := shared(v.table, want.target); err != nil {
		return err
	}
	if err := makeTarget(want.access, want.target); err != nil {
		return err
	}
	if err := s.mounts.Bind(at, want.target, want.readOnly); err != nil {
		return err
	}
	return s.provePublished(staged, want)
}

// published accepts what is mounted at a target only if the mount table proves that all
// of it is the wanted bind (block.md B-362). Pure.
func published(at mount.Table, staged mount.Entry, readOnly bool) (bool, error) {
	for _, e := range at {
		if !e.Same(staged) || e.ReadOnly != readOnly {
			return false, csiserve.As(csiserve.AlreadyExists, fmt.Errorf(
				"another mount is there (device %d:%d, root %s, read-only %v)", e.Major, e.Minor, e.Root, e.ReadOnly))
		}
	}
	return len(at) > 0, nil
}

func (s *Server) provePublished(staged mount.Entry, want publishRequest) error {
	table, err := s.mounts.Table()
	if err != nil {
		return err
	}
	there, err := published(table.At(want.target), staged, want.readOnly)
	if err == nil && !there {
		err = fmt.Errorf("the kernel bound it, but the mount table does not show it")
	}
	return err
}

func makeTarget(access staging.Access, target string) error {
	if access == staging.Block {
		return makeFile(target)
	}
	return makeDir(target)
}

// NodeUnpublishVolume takes a volume away from a target path and removes the path.
func (s *Server) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := req.GetVolumeId(), req.GetTargetPath()
	if err := required("volume_id", id); err != nil {
		return nil, err
	}
	if err := path("target_path", target); err != nil {
		return nil, err
	}
	if err := s.unpublish(ctx, id, filepath.Clean(target)); err != nil {
		return nil, fmt.Errorf("unpublish %s from %s: %w", id, target, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func (s *Server) unpublish(ctx context.Context, id, target string) error {
	v, err := s.look(ctx, id, nil)
	if err != nil {
		return err
	}
	if len(v.table.At(target)) > 0 {
		if err := s.bare(v, target); err != nil {
			return err
		}
	} else {
		csiserve.Unchanged(ctx)
	}
	return remove(target)
}

// bare unmounts until nothing is mounted at path. Each mount must be this volume's.
func (s *Server) bare(v view, path string) error {
	for at := v.table.At(path); len(at) > 0; {
		if top, _ := at.Top(); !ours(v, top) {
			return precondition("the mount at %s (device %d:%d, root %s) is not this volume", path, top.Major, top.Minor, top.Root)
		}
		if err := s.mounts.Unmount(path); err != nil {
			return err
		}
		table, err := s.mounts.Table()
		if err != nil {
			return err
		}
		left := table.At(path)
		if len(left) >= len(at) {
			return fmt.Errorf("the kernel unmounted %s, but the mount table still shows it", path)
		}
		at = left
	}
	return nil
}

// ours reports whether a mount shows the recorded volume. When its device is gone, dead
// mounts of it remain: those that are like the one at the staging point. Without a record
// nothing is ours.
func ours(v view, e mount.Entry) bool {
	if !v.recorded {
		return false
	}
	if v.connected {
		return shows(e, v.rec.Access, v.dev)
	}
	staged, ok := v.table.At(point(v.rec.Access, v.rec.StagingPath)).Top()
	return ok && (v.rec.Access == staging.Block || staged.Type == v.rec.FSType) && e.Same(staged)
}
