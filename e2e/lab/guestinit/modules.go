package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
)

// modulePath is the file of a module of the running kernel, before the root is made.
func modulePath(name string) string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return name
	}
	return filepath.Join(modDir, unix.ByteSliceToString(u.Release[:]), name)
}

// loadModule loads one file; dependencies must be there. A module that is loaded or built in
// already is success.
func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", filepath.Base(path), err)
	}
	return nil
}

// modules loads what the guest was asked to have, and mounts configfs, which is a module too.
func modules(config agent.Boot) error {
	for _, name := range append([]string{"configfs"}, config.Load...) {
		if err := program("modprobe", name); err != nil {
			return err
		}
	}
	if err := mount("configfs", "/sys/kernel/config", "configfs", 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return err
	}
	return nil
}

// devices starts udevd and lets it see the disks: it makes /dev/disk and /dev/VG/LV as on a
// real node.
func devices(agent.Boot) error {
	if err := program("/usr/lib/systemd/systemd-udevd", "--daemon"); err != nil {
		return err
	}
	if err := program("udevadm", "trigger", "--action=add", "--subsystem-match=block"); err != nil {
		return err
	}
	return program("udevadm", "settle")
}
