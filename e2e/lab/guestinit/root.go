package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
)

// The directories of the boot file system that makeRoot works in. On user-mode Linux the boot
// file system is read-only and the lab made them.
const (
	procDir  = "/proc"
	lowDir   = "/low"     // the shared root
	modDir   = "/modules" // the kernel's module trees
	layerDir = "/layer"   // tmpfs: upper and work directory
	newDir   = "/new"     // becomes /
)

// makeRoot builds the guest's file tree below newDir and makes it the root: the shared root
// under a tmpfs, with the guest's own disk as /var and, as a layer over the shared one, /etc.
func makeRoot(config agent.Boot) error {
	if err := mount("proc", procDir, "proc", 0, ""); err != nil {
		return err
	}
	if _, err := os.Stat(os.DevNull); err != nil { // the initial ramfs; elsewhere the kernel did it
		if err := mountDev("/dev"); err != nil {
			return err
		}
	}
	for _, name := range config.Early {
		if err := loadModule(filepath.Join(modDir, name)); err != nil {
			return err
		}
	}
	root, modules := config.Root, config.Modules
	root.Target, modules.Target = lowDir, modDir
	if err := errors.Join(mountShare(root), mountShare(modules)); err != nil {
		return err
	}
	if err := loadModule(modulePath("kernel/fs/overlayfs/overlay.ko")); err != nil {
		return err
	}
	if err := overlayRoot(); err != nil {
		return err
	}
	if err := moveMount(modDir, newDir+"/usr/lib/modules"); err != nil {
		return err
	}
	if err := mountDev(newDir + "/dev"); err != nil {
		return err
	}
	if err := mountVar(config.Var); err != nil {
		return fmt.Errorf("/var on %s: %w", config.Var, err)
	}
	if err := overlayEtc(); err != nil {
		return err
	}
	return switchRoot()
}

func overlayRoot() error {
	if err := mount("tmpfs", layerDir, "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	upper, work := layerDir+"/upper", layerDir+"/work"
	if err := makeDirs(upper, work); err != nil {
		return err
	}
	return mount("overlay", newDir, "overlay", 0, "lowerdir="+lowDir+",upperdir="+upper+",workdir="+work)
}

func mountDev(dir string) error { return mount("devtmpfs", dir, "devtmpfs", 0, "mode=755") }

// mountVar mounts the guest's disk. A blank one is formatted and gets the shared root's /var.
func mountVar(device string) error {
	blank, err := isBlank(newDir + device)
	if err != nil {
		return err
	}
	if blank {
		err := inNewRoot("/usr/sbin/mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=1", "-L", "var", device)
		if err != nil {
			return err
		}
	}
	if err := mount(newDir+device, newDir+"/mnt", "ext4", 0, ""); err != nil {
		return err
	}
	if blank {
		if err := inNewRoot("/bin/cp", "-a", "/var/.", "/mnt/"); err != nil {
			return err
		}
	}
	return moveMount(newDir+"/mnt", newDir+"/var")
}

// isBlank reports whether the first 64 KiB of a device are zeros; unreadable is an error.
func isBlank(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	start := make([]byte, 64<<10)
	if _, err := f.ReadAt(start, 0); err != nil {
		return false, err
	}
	return len(bytes.Trim(start, "\x00")) == 0, nil
}

func inNewRoot(argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: newDir}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, bytes.TrimSpace(out))
	}
	return nil
}

// overlayEtc keeps what the guest writes to /etc on its disk. Its lower layer is the shared
// root's /etc, not the one of the overlay above it: the kernel stacks no deeper than two.
func overlayEtc() error {
	layer := newDir + "/var/lib/lab-etc"
	upper, work := layer+"/upper", layer+"/work"
	if err := makeDirs(upper, work); err != nil {
		return err
	}
	return mount("overlay", newDir+"/etc", "overlay", 0, "lowerdir="+lowDir+"/etc,upperdir="+upper+",workdir="+work)
}

// switchRoot makes newDir the root. pivot_root(2) works on a real root file system and is
// refused (EINVAL) on the initial ramfs, where the root is covered instead.
func switchRoot() error {
	old := newDir + "/mnt"
	err := unix.PivotRoot(newDir, old)
	if err == nil {
		if err := os.Chdir("/"); err != nil {
			return err
		}
		return unix.Unmount("/mnt", unix.MNT_DETACH)
	}
	if !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir(newDir); err != nil {
		return err
	}
	if err := moveMount(newDir, "/"); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	return os.Chdir("/")
}
