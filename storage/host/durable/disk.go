package durable

import (
	"os"

	"github.com/pillar-csi/pillar/storage/host"
)

// Disk is the machine's filesystem.
type Disk struct{}

// ReadFile implements FS.
func (Disk) ReadFile(path string) ([]byte, error) { return host.ReadFile(path) }

// CreateTemp implements FS. The mode is set before any content is written.
func (Disk) CreateTemp(dir, pattern string, perm os.FileMode) (File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	if err := f.Chmod(perm); err != nil {
		f.Close()
		os.Remove(f.Name())
		return nil, err
	}
	return f, nil
}

// Rename implements FS.
func (Disk) Rename(from, to string) error { return os.Rename(from, to) }

// Remove implements FS.
func (Disk) Remove(path string) error { return os.Remove(path) }

// SyncDir implements FS.
func (Disk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if e := d.Close(); err == nil {
		err = e
	}
	return err
}
