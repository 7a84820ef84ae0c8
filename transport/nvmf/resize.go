package nvmf

import (
	"context"
	"fmt"
	"math"
	"path"

	"github.com/pillar-csi/pillar/transport"
)

// sector is the unit of sysfs's size of a disk in bytes, whatever the disk's own sectors.
const sector = 512

// Resize answers the size in bytes of a connected subsystem's device once it is at least
// atLeast. The target tells hosts when it grows, but the notice can get lost: unless the
// device is that large already, its controllers are scanned again. The scan makes the
// kernel forget the transfer limit: call Limit. Not connected is transport.ErrNotFound; a
// device that stays smaller is context.DeadlineExceeded, with the size it has.
func (h *Host) Resize(ctx context.Context, nqn string, atLeast int64) (int64, error) {
	size, err := h.size(nqn)
	if err == nil && (atLeast <= 0 || size < atLeast) {
		size, err = h.grown(ctx, nqn, atLeast)
	}
	if err != nil {
		return 0, fmt.Errorf("resize %s: %w", nqn, err)
	}
	return size, nil
}

func (h *Host) grown(ctx context.Context, nqn string, atLeast int64) (size int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, deviceWait)
	defer cancel()
	if err := h.rescan(ctx, nqn); err != nil {
		return 0, err
	}
	err = wait(ctx, func() (bool, error) {
		var err error
		size, err = h.size(nqn)
		return size >= atLeast, err
	})
	if err != nil {
		err = fmt.Errorf("wait for %d bytes, have %d: %w", atLeast, size, err)
	}
	return size, err
}

// size reads the size of namespace 1.
func (h *Host) size(nqn string) (int64, error) {
	ns, err := findNamespace(h.sys, nqn, h.cfg.HostNQN)
	if err != nil {
		return 0, err
	}
	if ns == nil {
		return 0, fmt.Errorf("%w: not connected", transport.ErrNotFound)
	}
	sectors, err := h.readInt(path.Join(ns.dir, "size"))
	if err == nil && (sectors < 0 || sectors > math.MaxInt64/sector) {
		err = fmt.Errorf("%s has %d sectors", ns.name, sectors)
	}
	return sectors * sector, err
}
