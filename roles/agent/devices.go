package agent

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
)

// devices is what the agent asks of a device node.
type devices interface {
	// Ready opens the device and lets go. errNoDevice: not there yet.
	Ready(path string) error
	// Numbers answers what the node leads to; fs.ErrNotExist if there is none.
	Numbers(path string) (major, minor uint32, err error)
	// Hold claims the device against every other exclusive user; storage.ErrBusy. The path
	// must lead to the device that was looked at, if one was; storage.ErrPrecondition.
	Hold(path string, looked storage.DeviceID) (release func() error, err error)
}

// errNoDevice is a node that is missing or has no device behind it.
var errNoDevice = errors.New("no block device there")

// kernelDevices asks the kernel.
type kernelDevices struct{ root host.Root }

func (kernelDevices) Ready(path string) error {
	f, err := blockdev.Open(path, os.O_RDONLY)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("%w: %w", errNoDevice, err)
	}
	if err != nil {
		return err // waiting does not help
	}
	return f.Close()
}

func (kernelDevices) Numbers(path string) (major, minor uint32, err error) {
	return blockdev.Numbers(path)
}

func (k kernelDevices) Hold(path string, looked storage.DeviceID) (release func() error, err error) {
	if looked == (storage.DeviceID{}) {
		release, err = blockdev.Hold(path)
	} else {
		release, err = blockdev.HoldSame(k.root, path, looked)
	}
	if errors.Is(err, storage.ErrBusy) {
		return nil, fmt.Errorf("%s is still held on the storage node (local attach in use): %w", path, err)
	}
	return release, err
}
