// Package filesystem makes ext4 and xfs filesystems, only on a device that blkid has just
// proven blank, and grows mounted ones. It runs
//
//	mkfs.ext4 -F -m0 [user options] DEVICE
//	mkfs.xfs [/usr/share/xfsprogs/mkfs/lts_5.15.conf as flags] [user options] DEVICE
//	resize2fs DEVICE
//	xfs_growfs MOUNTPOINT
//
// and probes again after mkfs: what it claims to have made must be there.
package filesystem

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blkid"
	"github.com/pillar-csi/pillar/storage/host"
)

// formatWait is how long mkfs may take. It is not the caller's deadline, which may be
// short: a mkfs that is killed half way leaves a device nobody may format again. mkfs
// discards the whole device first, which takes minutes on large thin volumes.
const formatWait = 15 * time.Minute

// Device is an open block device. Reads must come from the device, not from a cache
// older than the last write to it.
type Device interface {
	io.ReaderAt
	Path() string
	Size() int64 // bytes
}

// Want is what a volume's filesystem shall be.
type Want struct {
	Type    string   // "ext4" or "xfs"
	Options []string // mkfs options of the user; they come last and win
	Format  bool     // a blank device may be formatted
}

// Tools runs mkfs and what makes filesystems grow.
type Tools struct {
	Run  host.Runner
	Root host.Root // where xfsprogs keeps its profiles
}

// Prepare makes sure that dev holds a filesystem of the wanted type, formats it if it is
// proven blank and that is allowed, and says whether it did. A filesystem of another type
// and anything else on the device are storage.ErrPrecondition, as is a blank device that
// may not be formatted. Whatever the probe cannot tell is an error and changes nothing. A
// mkfs that has begun is finished even when ctx ends.
func (t Tools) Prepare(ctx context.Context, dev Device, want Want) (formatted bool, err error) {
	if err := CheckOptions(want.Type, want.Options); err != nil {
		return false, err
	}
	found, err := blkid.Probe(dev, dev.Size())
	switch {
	case err != nil:
		return false, fmt.Errorf("what is on %s is unknown: %w", dev.Path(), err)
	case found.Kind == blkid.Known && found.Type == want.Type:
		return false, nil
	case found.Kind == blkid.Known:
		return false, fmt.Errorf("%w: %s holds %s, not %s; it is never formatted",
			storage.ErrPrecondition, dev.Path(), found.Type, want.Type)
	case !want.Format:
		return false, fmt.Errorf("%w: %s is blank and must not be formatted", storage.ErrPrecondition, dev.Path())
	}
	return true, t.format(ctx, dev, want)
}

// format runs mkfs and looks at the result.
func (t Tools) format(ctx context.Context, dev Device, want Want) error {
	argv, err := t.defaults(want)
	if err != nil {
		return err
	}
	argv = append(argv, options(want)...)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), formatWait)
	defer cancel()
	if _, err := t.Run.Run(ctx, "mkfs."+want.Type, append(argv, dev.Path())...); err != nil {
		return fmt.Errorf("format %s: %w", dev.Path(), err)
	}
	found, err := blkid.Probe(dev, dev.Size())
	if err != nil {
		return fmt.Errorf("look at the new filesystem on %s: %w", dev.Path(), err)
	}
	if found.Kind != blkid.Known || found.Type != want.Type {
		return fmt.Errorf("mkfs.%s succeeded but %s holds %s", want.Type, dev.Path(), found)
	}
	return nil
}

// options are the user's, without -F: mke2fs(8) reads a second one as leave to format a
// device that is mounted or in use, and the defaults have the first.
func options(want Want) []string {
	if want.Type != "ext4" {
		return want.Options
	}
	return slices.DeleteFunc(slices.Clone(want.Options), func(o string) bool { return o == "-F" })
}

// defaults come before the user's options (api.md 10.2).
func (t Tools) defaults(want Want) ([]string, error) {
	if want.Type == "xfs" {
		return t.profileOptions(want.Options)
	}
	return []string{"-F", "-m0"}, nil
}
