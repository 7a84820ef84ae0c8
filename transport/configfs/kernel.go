package configfs

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/crashpoint"
	"golang.org/x/sys/unix"
)

// kernel is the real configfs; its value is the mount point.
type kernel string

// Kernel answers the configfs mounted at sys/kernel/config below root.
func Kernel(root host.Root) FS { return kernel(root.Path("sys/kernel/config")) }

func (k kernel) path(name string) string { return filepath.Join(string(k), name) }

func (k kernel) Mkdir(name string) error { return os.Mkdir(k.path(name), 0o755) }

func (k kernel) Rmdir(name string) error {
	if err := unix.Rmdir(k.path(name)); err != nil {
		return &os.PathError{Op: "rmdir", Path: k.path(name), Err: err}
	}
	return nil
}

func (k kernel) Symlink(target, name string) error {
	return os.Symlink(k.path(target), k.path(name))
}

func (k kernel) Unlink(name string) error {
	if err := unix.Unlink(k.path(name)); err != nil {
		return &os.PathError{Op: "unlink", Path: k.path(name), Err: err}
	}
	return nil
}

func (k kernel) ReadFile(name string) ([]byte, error) { return os.ReadFile(k.path(name)) }

// WriteFile hands data to the attribute in one write(2): each is a store of its own.
func (k kernel) WriteFile(name string, data []byte) error {
	f, err := os.OpenFile(k.path(name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func (k kernel) ReadDir(name string) ([]string, error) {
	entries, err := os.ReadDir(k.path(name))
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (k kernel) IsDir(name string) (bool, error) {
	st, err := os.Lstat(k.path(name))
	if err != nil {
		return false, err
	}
	return st.IsDir(), nil
}

// configfsMagic is CONFIGFS_MAGIC of fs/configfs/mount.c.
const configfsMagic = 0x62656570

// Mounted tells whether configfs is mounted at sys/kernel/config below root. The directory
// exists on every kernel with configfs.
func Mounted(root host.Root) (bool, error) {
	dir := root.Path("sys/kernel/config")
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("look for configfs at %s: %w", dir, err)
	}
	return st.Type == configfsMagic, nil
}

// Mount mounts configfs at sys/kernel/config below root unless it is mounted there
// (block.md B-269: after a reboot nothing on the host may have done it).
func Mount(root host.Root) error {
	if mounted, err := Mounted(root); mounted || err != nil {
		return err
	}
	dir := root.Path("sys/kernel/config")
	crashpoint.Before(crashpoint.Mount, dir)
	err := unix.Mount("configfs", dir, "configfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
	crashpoint.After(crashpoint.Mount, dir)
	if err != nil {
		return fmt.Errorf("mount configfs at %s: %w", dir, err)
	}
	return nil
}
