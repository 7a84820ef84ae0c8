package filesystem

import (
	"context"
	"fmt"

	"github.com/pillar-csi/pillar/storage"
)

// Grow makes the filesystem of the given type, mounted at mountPoint from the device, as
// large as the device; one that is already, is success. Its users notice nothing. The
// kernel finishes or drops each step of it, so a tool that is killed can be run again.
func (t Tools) Grow(ctx context.Context, fstype, device, mountPoint string) error {
	var err error
	switch fstype {
	case "ext4":
		_, err = t.Run.Run(ctx, "resize2fs", device)
	case "xfs":
		_, err = t.Run.Run(ctx, "xfs_growfs", mountPoint)
	default:
		err = fmt.Errorf("%w: filesystem type %q", storage.ErrInvalid, fstype)
	}
	if err != nil {
		return fmt.Errorf("grow %s on %s: %w", fstype, device, err)
	}
	return nil
}
