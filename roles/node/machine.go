package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/crashpoint"
	"github.com/pillar-csi/pillar/storage/mount"
)

// aliveWait is how long a filesystem may take to answer (block.md U-37). A healthy one
// answers at once; one whose target is away hangs for the whole controller loss timeout.
const aliveWait = 10 * time.Second

// kernelMounts is the mount table of this process's namespace.
type kernelMounts struct{ root host.Root }

func (k kernelMounts) Table() (mount.Table, error) { return mount.Read(k.root) }

func (kernelMounts) Mount(source, target, fstype string, options []string) error {
	return mount.Mount(source, target, fstype, options)
}

func (kernelMounts) Bind(source, target string, readOnly bool) error {
	return mount.Bind(source, target, readOnly)
}

func (kernelMounts) Unmount(path string) error { return mount.Unmount(path) }

// kernelProbe asks real devices and filesystems.
type kernelProbe struct{}

// Open opens a block device for reading. Its content is read from the device, never from
// what the kernel cached of it.
func (kernelProbe) Open(path string) (device, error) {
	f, err := os.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	d, err := newBlockFile(f, path)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return d, nil
}

// blockFile is an open block device.
type blockFile struct {
	file         *os.File
	path         string
	size         int64
	major, minor uint32
}

func newBlockFile(f *os.File, path string) (*blockFile, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return nil, fmt.Errorf("%s is not a block device", path)
	}
	size, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_END)
	if err != nil {
		return nil, fmt.Errorf("size of %s: %w", path, err)
	}
	return &blockFile{file: f, path: path, size: size, major: unix.Major(st.Rdev), minor: unix.Minor(st.Rdev)}, nil
}

func (d *blockFile) Path() string              { return d.path }
func (d *blockFile) Size() int64               { return d.size }
func (d *blockFile) Numbers() (uint32, uint32) { return d.major, d.minor }
func (d *blockFile) Close() error              { return d.file.Close() }

// ReadAt drops cached pages around the range before it reads, so that the answer comes
// from the device.
func (d *blockFile) ReadAt(b []byte, off int64) (int, error) {
	page := int64(os.Getpagesize())
	start := off &^ (page - 1)
	end := (off + int64(len(b)) + page - 1) &^ (page - 1)
	if err := unix.Fadvise(int(d.file.Fd()), start, end-start, unix.FADV_DONTNEED); err != nil {
		return 0, fmt.Errorf("drop the cache of %s: %w", d.path, err)
	}
	return d.file.ReadAt(b, off)
}

// Flush implements prober.
func (kernelProbe) Flush(ctx context.Context, path string, exclusive bool) error {
	return bounded(ctx, func() error {
		flags := os.O_RDWR
		if exclusive {
			flags |= unix.O_EXCL // on a block device: fail if anyone else claims it
		}
		f, err := os.OpenFile(path, flags, 0)
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%w: %w", storage.ErrBusy, err)
		}
		if err != nil {
			return err
		}
		defer f.Close()
		crashpoint.Before(crashpoint.Kernel, "flush "+path)
		err = f.Sync()
		crashpoint.After(crashpoint.Kernel, "flush "+path)
		return err
	})
}

// Alive implements prober: the filesystem answers statfs(2) and a read of its root.
func (p kernelProbe) Alive(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, aliveWait)
	defer cancel()
	if _, err := p.Statfs(ctx, path); err != nil {
		return err
	}
	return bounded(ctx, func() error {
		dir, err := os.Open(path)
		if err != nil {
			return err
		}
		defer dir.Close()
		_, err = dir.ReadDir(-1)
		return err
	})
}

// Statfs implements prober.
func (kernelProbe) Statfs(ctx context.Context, path string) (unix.Statfs_t, error) {
	var st unix.Statfs_t
	if err := bounded(ctx, func() error { return unix.Statfs(path, &st) }); err != nil {
		return unix.Statfs_t{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	return st, nil
}

// bounded runs f in a thread of its own and stops waiting for it when ctx ends: a system
// call on a dead device cannot be interrupted. f must be harmless when it ends late.
func bounded(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer: %w", ctx.Err())
	}
}

// makeDir makes the last directory of path, unless it is there.
func makeDir(path string) error {
	crashpoint.Before(crashpoint.Mount, "mkdir "+path)
	err := os.Mkdir(path, 0o750)
	crashpoint.After(crashpoint.Mount, "mkdir "+path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// makeFile makes an empty file to bind a device on, unless it is there.
func makeFile(path string) error {
	crashpoint.Before(crashpoint.Mount, "create "+path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	crashpoint.After(crashpoint.Mount, "create "+path)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// remove removes an empty directory or a file; not there is success. A directory that is
// not empty holds what a pod wrote past its volume, and stays.
func remove(path string) error {
	crashpoint.Before(crashpoint.Mount, "remove "+path)
	err := os.Remove(path)
	crashpoint.After(crashpoint.Mount, "remove "+path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// exists reports whether a path is there; what cannot be told is an error.
func exists(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
