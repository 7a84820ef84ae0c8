package configfs

import (
	"bytes"
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

func (k kernel) ReadFile(name string) ([]byte, error) {
	f, err := k.open(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.close()
	return f.show()
}

func (k kernel) WriteFile(name string, data []byte) error {
	f, err := k.open(name, unix.O_WRONLY)
	if err != nil {
		return err
	}
	defer f.close()
	return f.store(data)
}

// attribute is an open attribute file. A restored target is thousands of them; package os
// would offer each to its poller, which takes as long as the write.
type attribute struct {
	fd   int
	path string
}

// attributeMax is the most an attribute shows: one page (SIMPLE_ATTR_SIZE).
const attributeMax = 4096

func (k kernel) open(name string, flag int) (attribute, error) {
	a := attribute{path: k.path(name)}
	err := a.again("open", func() (err error) {
		a.fd, err = unix.Open(a.path, flag|unix.O_CLOEXEC, 0)
		return err
	})
	return a, err
}

// again repeats a call that a signal cut off.
func (a attribute) again(op string, call func() error) error {
	err := call()
	for err == unix.EINTR {
		err = call()
	}
	if err != nil {
		return &os.PathError{Op: op, Path: a.path, Err: err}
	}
	return nil
}

func (a attribute) show() ([]byte, error) {
	var page [attributeMax]byte // on the stack: most values are short
	var n int
	err := a.again("read", func() (err error) {
		n, err = unix.Pread(a.fd, page[:], 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	return bytes.Clone(page[:n]), nil
}

// store hands data to the attribute in one write(2): each is a store of its own.
func (a attribute) store(data []byte) error {
	return a.again("write", func() error {
		n, err := unix.Write(a.fd, data)
		if err == nil && n != len(data) {
			err = unix.EIO
		}
		return err
	})
}

func (a attribute) close() { unix.Close(a.fd) } // nothing is buffered that could be lost

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
