// Package durable writes small files that survive a crash: after power comes back a file
// holds the old content or the new one, never a mixture and never nothing.
//
//	DIR/
//	  NAME               the file; only ever replaced by rename
//	  .NAME.RANDOM.tmp   a write on its way, or one that a crash left behind (Prepare)
//
// The order is the whole point. The data reaches the disk before the rename, else the
// name could survive with an empty file behind it; the directory reaches the disk before
// Write returns, else the old file could come back after the caller acted on the new one.
package durable

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pillar-csi/pillar/storage/host/crashpoint"
)

// FS is what durable files need of a filesystem. Disk is the real one; durabletest.FS is
// one that loses power.
type FS interface {
	// ReadFile answers a file's content, or an fs.ErrNotExist error.
	ReadFile(path string) ([]byte, error)
	// CreateTemp makes a file of a new name in dir, as os.CreateTemp does.
	CreateTemp(dir, pattern string, perm os.FileMode) (File, error)
	// Rename puts a file in another's place, atomically for every reader.
	Rename(from, to string) error
	// Remove unlinks a file.
	Remove(path string) error
	// SyncDir makes the names in dir durable: renames and unlinks so far survive a crash.
	SyncDir(dir string) error
}

// File is a file being written.
type File interface {
	Name() string
	Write(p []byte) (int, error)
	Sync() error // the content so far survives a crash
	Close() error
}

// Write replaces the file at path on the real filesystem. See WriteTo.
func Write(path string, data []byte, perm os.FileMode) error {
	return WriteTo(Disk{}, path, data, perm)
}

// Remove removes the file at path on the real filesystem. See RemoveFrom.
func Remove(path string) error { return RemoveFrom(Disk{}, path) }

// WriteTo replaces the file at path by one that holds data, and returns when that
// survives a crash. After an error the file holds the old content or the new one; the
// caller reads it to know. Concurrent writers never mix, the last rename wins.
func WriteTo(fsys FS, path string, data []byte, perm os.FileMode) error {
	dir, base := filepath.Split(path)
	temp, err := writeTemp(fsys, dir, base, data, perm)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	crashpoint.Before(crashpoint.Durable, "rename "+base)
	err = fsys.Rename(temp, path)
	crashpoint.After(crashpoint.Durable, "rename "+base)
	if err != nil {
		_ = fsys.Remove(temp) // best effort: Prepare takes what stays
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Clean(dir)); err != nil {
		return fmt.Errorf("sync directory of %s: %w", path, err)
	}
	return nil
}

// writeTemp answers the name of a synced file beside path that holds data.
func writeTemp(fsys FS, dir, base string, data []byte, perm os.FileMode) (string, error) {
	f, err := fsys.CreateTemp(filepath.Clean(dir), "."+base+".*.tmp", perm)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		_ = fsys.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// RemoveFrom removes the file at path and returns when that survives a crash. Absent is
// success: an earlier call may have been cut off between the unlink and the sync.
func RemoveFrom(fsys FS, path string) error {
	base := filepath.Base(path)
	crashpoint.Before(crashpoint.Durable, "remove "+base)
	err := fsys.Remove(path)
	crashpoint.After(crashpoint.Durable, "remove "+base)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	if err := fsys.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync directory of %s: %w", path, err)
	}
	return nil
}

// IsTemp tells whether name, without its directory, is a write that a crash left behind.
// Readers of a directory pass over it.
func IsTemp(name string) bool {
	return strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".tmp")
}

// Prepare makes dir, on the real filesystem, ready for its owner: it exists, holds no
// unfinished write, and every name in it survives a crash. The last matters after a
// restart: the process before may have died between a rename and its sync, and what this
// one reads could still vanish with the power.
func Prepare(dir string, perm os.FileMode) error {
	if err := os.MkdirAll(dir, perm); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !IsTemp(e.Name()) {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := (Disk{}).SyncDir(d); err != nil {
			return fmt.Errorf("sync %s: %w", d, err)
		}
	}
	return nil
}
