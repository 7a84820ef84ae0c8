package nvmf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/pillar-csi/pillar/storage/host/crashpoint"
	"github.com/pillar-csi/pillar/transport"
	"golang.org/x/sys/unix"
)

// node makes the device node path of the given kind unless it is there. One with other
// numbers is an error: /dev does not show this kernel's devices.
func (h *Host) node(path string, kind, major, minor uint32) error {
	var st unix.Stat_t
	err := unix.Lstat(path, &st)
	if errors.Is(err, fs.ErrNotExist) {
		crashpoint.Before(crashpoint.Kernel, "mknod "+path)
		err = unix.Mknod(path, kind|0o600, int(unix.Mkdev(major, minor)))
		crashpoint.After(crashpoint.Kernel, "mknod "+path)
		if err == nil || !errors.Is(err, fs.ErrExist) {
			return wrap("make node "+path, err)
		}
		err = unix.Lstat(path, &st)
	}
	if err != nil {
		return wrap("look at "+path, err)
	}
	return sameDevice(path, &st, kind, major, minor)
}

func sameDevice(path string, st *unix.Stat_t, kind, major, minor uint32) error {
	if st.Mode&unix.S_IFMT != kind || st.Rdev != unix.Mkdev(major, minor) {
		return fmt.Errorf("%s has mode %o and numbers %d:%d, the kernel says %d:%d",
			path, st.Mode, unix.Major(st.Rdev), unix.Minor(st.Rdev), major, minor)
	}
	return nil
}

// confirm opens the device and compares what was opened.
func (h *Host) confirm(dev Device) error {
	fd, err := unix.Open(dev.Path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return sameDevice(dev.Path, &st, unix.S_IFBLK, dev.Major, dev.Minor)
}

// write writes one sysfs attribute, named below sys, in one write(2).
func (h *Host) write(ctx context.Context, attr, value string) error {
	what := "set " + attr
	crashpoint.Before(crashpoint.Kernel, what)
	err := await(ctx, func() error {
		f, err := os.OpenFile(h.root.Path("sys", attr), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteString(value)
		return errors.Join(err, f.Close())
	})
	crashpoint.After(crashpoint.Kernel, what)
	return wrap(what, err)
}

func wrap(what string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// Detach disconnects every controller this host has to the subsystem and returns when the
// kernel has removed them and the device. Nothing there is success. Controllers of another
// subsystem or host NQN are not touched; one of another host NQN to the same subsystem
// keeps the device, and Detach waits until ctx ends. So it does while a first connect runs
// at the portal, or anywhere if none is given: its subsystem is not known yet.
func (h *Host) Detach(ctx context.Context, nqn string, portal transport.Portal) error {
	anywhere := portal == transport.Portal{}
	portal = canonical(portal)
	var left []controller
	err := wait(ctx, func() (bool, error) {
		all, err := controllers(h.sys)
		if err != nil {
			return false, err
		}
		left = nil
		for _, c := range all {
			if c.hostNQN == h.cfg.HostNQN && (c.nqn == nqn || unnamed(c) && (anywhere || c.portal == portal)) {
				left = append(left, c)
			}
		}
		if err := h.remove(ctx, nqn, left); err != nil || len(left) > 0 {
			return false, err
		}
		ns, err := findNamespace(h.sys, nqn, h.cfg.HostNQN)
		return ns == nil, err
	})
	if err != nil {
		return fmt.Errorf("detach %s, left %s: %w", nqn, describe(left), err)
	}
	return nil
}

// unnamed says whether the controller's first connect still runs: until the subsystem has
// answered, subsysnqn reads "(null)", and the controller could be the one to remove.
func unnamed(c controller) bool {
	return len(c.nqn) < 4 || c.nqn[:4] != "nqn."
}

// remove asks the kernel to delete the controllers of nqn that are not on their way out.
func (h *Host) remove(ctx context.Context, nqn string, cs []controller) error {
	for _, c := range cs {
		if c.nqn != nqn || c.leaving() {
			continue
		}
		dir := path.Join("class/nvme", c.name)
		err := h.write(ctx, path.Join(dir, "delete_controller"), "1")
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENODEV):
		case errors.Is(err, unix.EBUSY): // not started yet; asked again on the next round
		default:
			return err
		}
	}
	return nil
}
