package lvm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/crashpoint"
)

// device is an LV's open block device.
type device interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Close() error
}

// Device is an open block device that can say which it is.
type Device interface {
	device
	io.Seeker
	Numbers() (major, minor uint32, err error)
}

// node is the kernel's.
type node struct{ *os.File }

func (n node) Numbers() (major, minor uint32, err error) { return blockdev.FileNumbers(n.File) }

func openNode(path string, flag int) (Device, error) {
	f, err := blockdev.Open(path, flag)
	if err != nil {
		return nil, err
	}
	return node{f}, nil
}

// errOldMapping is an LV's own device in another size: its metadata was changed and its
// mapping not loaded again.
var errOldMapping = errors.New("its mapping is not up to date")

// openVerified opens an LV's device and proves that it is this LV's: the numbers of what
// was opened are the LV's, and the mapping behind them has its UUID. Nodes made without
// udev can be left over from an earlier LV and lead to another one (B-224, P-41). A
// missing node is os.ErrNotExist.
func (g *Group) openVerified(lv report, flag int) (device, error) {
	path := g.root.Path("dev", g.cfg.VolumeGroup, lv.name)
	if !lv.active {
		return nil, fmt.Errorf("%s is not active", path)
	}
	f, err := g.cfg.Open(path, flag)
	if err != nil {
		return nil, err
	}
	if err := g.prove(f, lv); err != nil {
		return nil, errors.Join(fmt.Errorf("%s is not this LV's device: %w", path, err), f.Close())
	}
	return f, nil
}

func (g *Group) prove(f Device, lv report) error {
	major, minor, err := f.Numbers()
	if err != nil {
		return err
	}
	if major != lv.major || minor != lv.minor {
		return fmt.Errorf("it leads to %d:%d, the LV is %d:%d", major, minor, lv.major, lv.minor)
	}
	uuid, err := blockdev.DMUUID(g.root, major, minor)
	if err != nil {
		return errors.New("read its dm UUID: " + err.Error()) // not a missing node
	}
	if uuid != lv.dmUUID {
		return fmt.Errorf("its mapping is %q, the LV's is %q", uuid, lv.dmUUID)
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size != lv.size {
		return fmt.Errorf("%w: it has %d bytes, the LV %d", errOldMapping, size, lv.size)
	}
	return nil
}

// verify proves that the LV's device can be opened and is its own, and answers which it is.
func (g *Group) verify(lv report) (storage.DeviceID, error) {
	d, err := g.open(lv, os.O_RDONLY)
	if err != nil {
		return storage.DeviceID{}, err
	}
	id, err := blockdev.DeviceID(g.root, lv.major, lv.minor)
	return id, errors.Join(err, d.Close())
}

// edge is how much of both ends must be zero: filesystems, RAID, LVM and partition tables
// keep their signatures within it, and a node reads as much before it calls a device blank.
const edge = 1 << 20

// wipe zeroes both ends of a new LV. lvcreate has wiped what blkid knows; this does not
// depend on what it knows (B-221).
func (g *Group) wipe(lv report) error {
	what := "zero both ends of " + g.target(lv.name)
	crashpoint.Before(crashpoint.Kernel, what)
	err := g.onEnds(lv, os.O_WRONLY|os.O_EXCL, func(d device, zero []byte, at int64) error {
		_, err := d.WriteAt(zero, at)
		return err
	})
	crashpoint.After(crashpoint.Kernel, what)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// blank proves, through a fresh open, that both ends of a new LV are zero.
func (g *Group) blank(lv report) error {
	err := g.onEnds(lv, os.O_RDONLY, func(d device, zero []byte, at int64) error {
		got := make([]byte, len(zero))
		if _, err := d.ReadAt(got, at); err != nil {
			return err
		}
		if !bytes.Equal(got, zero) {
			return fmt.Errorf("old content at byte %d was not wiped", at)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("verify both ends of %s: %w", g.target(lv.name), err)
	}
	return nil
}

// onEnds opens the LV, hands do as many zeroes as each end has bytes and where it begins,
// and closes it with everything on the disk.
func (g *Group) onEnds(lv report, flag int, do func(d device, zero []byte, at int64) error) (err error) {
	d, err := g.open(lv, flag)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	zero := make([]byte, min(edge, lv.size))
	if err := do(d, zero, 0); err != nil {
		return err
	}
	if err := do(d, zero, lv.size-int64(len(zero))); err != nil {
		return err
	}
	if flag&os.O_WRONLY == 0 {
		return nil
	}
	return d.Sync()
}
