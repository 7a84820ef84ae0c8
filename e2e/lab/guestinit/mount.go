package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
)

func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, target, err)
	}
	return nil
}

func moveMount(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move mount %s to %s: %w", from, to, err)
	}
	return nil
}

func makeDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// mountShare mounts a host directory.
func mountShare(s agent.Share) error {
	var flags uintptr
	if s.ReadOnly {
		flags = unix.MS_RDONLY
	}
	if s.Type == "9p" {
		data := "trans=virtio,version=9p2000.L,msize=512000"
		if s.ReadOnly {
			data += ",cache=loose"
		}
		return mount(s.Source, s.Target, "9p", flags, data)
	}
	return mount("none", s.Target, s.Type, flags, s.Source)
}

func shares(config agent.Boot) error {
	for _, s := range config.Shares {
		if err := makeDirs(s.Target); err != nil {
			return err
		}
		if err := mountShare(s); err != nil {
			return err
		}
	}
	return nil
}

// mountKernelFilesystems mounts what a distribution's init mounts, in the new root.
func mountKernelFilesystems() error {
	const plain = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []struct {
		fstype, target string
		flags          uintptr
		data           string
	}{
		{"proc", "/proc", plain | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", plain | unix.MS_NOEXEC, ""},
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=620,ptmxmode=666,gid=5"},
		{"tmpfs", "/dev/shm", plain, "mode=1777"},
		{"mqueue", "/dev/mqueue", plain | unix.MS_NOEXEC, ""},
		{"tmpfs", "/run", plain, "mode=755"},
		{"tmpfs", "/tmp", plain, "mode=1777"},
		{"cgroup2", "/sys/fs/cgroup", plain | unix.MS_NOEXEC, ""},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := mount(m.fstype, m.target, m.fstype, m.flags, m.data); err != nil {
			return err
		}
	}
	if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("share the mounts: %w", err)
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, filepath.Join("/dev", name)); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return makeDirs("/run/lock/lvm", "/run/udev", "/run/lvm")
}
