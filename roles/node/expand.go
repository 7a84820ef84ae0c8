package node

import (
	"context"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/staging"
)

// NodeExpandVolume waits until the device of a staged volume has the size the controller
// gave it, and makes the filesystem on it as large. Pods go on using both.
func (s *Server) NodeExpandVolume(ctx context.Context, req *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	want, err := parseExpand(req)
	if err != nil {
		return nil, err
	}
	size, err := s.expand(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("expand %s at %s: %w", want.volumeID, want.path, err)
	}
	return &csi.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// expand answers the device's size in bytes. What the volume holds is the record's to
// say, not the request's (block.md B-355).
func (s *Server) expand(ctx context.Context, want expandRequest) (int64, error) {
	v, err := s.look(ctx, want.volumeID, nil)
	if err != nil {
		return 0, err
	}
	if err := growable(v, want.path); err != nil {
		return 0, err
	}
	if err := s.proveMounted(ctx, v, v.rec.Access, v.rec.StagingPath); err != nil {
		return 0, csiserve.As(csiserve.Internal, err) // kubelet would not retry FailedPrecondition
	}
	size, err := s.attach.Resize(ctx, v.rec.Source, want.atLeast)
	if err != nil {
		return 0, err
	}
	if err := s.attach.Limit(ctx, v.rec.Source); err != nil { // the scan made the kernel forget it
		return 0, err
	}
	if v.rec.Access == staging.Block {
		return size, nil
	}
	if err := s.format.Grow(ctx, v.rec.FSType, v.dev.Path, v.rec.StagingPath); err != nil {
		return 0, csiserve.As(csiserve.Internal, err)
	}
	return size, nil
}

// growable says why a volume that shows at path, or should, cannot grow (block.md B-456,
// B-461). Pure.
func growable(v view, path string) error {
	if !v.recorded {
		return precondition("it is not staged")
	}
	if v.rec.Preserve {
		return precondition("cannot expand volume: it is preserved as it was adopted")
	}
	if v.rec.Access == staging.Filesystem && v.rec.ReadOnly { // kubelet mounts all the same
		return precondition("it is staged read-only; its filesystem grows where it is staged writable")
	}
	if path == v.rec.StagingPath {
		path = point(v.rec.Access, path)
	}
	if top, ok := v.table.At(path).Top(); !ok || !ours(v, top) {
		return csiserve.As(csiserve.NotFound, fmt.Errorf("it is not mounted there"))
	}
	return nil
}
