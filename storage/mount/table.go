// Package mount mounts, binds and unmounts by system call and reads the kernel's mount
// table. The table alone decides what is mounted where: stat(2) of a dead filesystem
// fails although it is mounted.
//
//	mount(2)                                      a filesystem
//	open_tree(2), mount_setattr(2), move_mount(2) a bind, read-only from its first moment
//	umount2(2) with UMOUNT_NOFOLLOW               never lazy, never forced
//	/proc/self/mountinfo                          proc_pid_mountinfo(5)
package mount

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"github.com/pillar-csi/pillar/storage/host"
)

// Entry is one mount.
type Entry struct {
	ID, Parent   int
	Major, Minor uint32 // st_dev of files on it; for ext4 and xfs the block device
	Root         string // what of the filesystem is mounted; of a bound file its path there
	Path         string // where
	Type         string
	Source       string
	ReadOnly     bool // this mount, whatever its superblock says
	Shared       bool // in a peer group: mounts below it appear in other namespaces
}

// Same reports whether both mounts show the same place of the same filesystem.
func (e Entry) Same(o Entry) bool {
	return e.Major == o.Major && e.Minor == o.Minor && e.Root == o.Root
}

// Table is every mount this process sees, in the kernel's order.
type Table []Entry

// Read reads the mount table of this process.
func Read(root host.Root) (Table, error) {
	f, err := os.Open(root.Path("proc/self/mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	defer f.Close()
	infos, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, fmt.Errorf("read mount table: %w", err)
	}
	if len(infos) == 0 {
		return nil, fmt.Errorf("read mount table: %s is empty", f.Name())
	}
	table := make(Table, 0, len(infos))
	for _, in := range infos {
		table = append(table, entry(in))
	}
	return table, nil
}

func entry(in *mountinfo.Info) Entry {
	return Entry{
		ID: in.ID, Parent: in.Parent,
		Major: uint32(in.Major), Minor: uint32(in.Minor),
		Root: in.Root, Path: in.Mountpoint, Type: in.FSType, Source: in.Source,
		ReadOnly: slices.Contains(strings.Split(in.Options, ","), "ro"),
		Shared:   strings.HasPrefix(in.Optional, "shared:") || strings.Contains(in.Optional, " shared:"),
	}
}

// At answers the mounts stacked at exactly path, the visible one last.
func (t Table) At(path string) Table {
	path = filepath.Clean(path)
	return t.where(func(e Entry) bool { return e.Path == path })
}

// Device answers the mounts of the filesystem on a block device.
func (t Table) Device(major, minor uint32) Table {
	return t.where(func(e Entry) bool { return e.Major == major && e.Minor == minor })
}

// Except answers the mounts that are not at path.
func (t Table) Except(path string) Table {
	path = filepath.Clean(path)
	return t.where(func(e Entry) bool { return e.Path != path })
}

// Top answers the visible one of mounts stacked at one path.
func (t Table) Top() (Entry, bool) {
	if len(t) == 0 {
		return Entry{}, false
	}
	return t[len(t)-1], true
}

// Covering answers the mount that path lies on.
func (t Table) Covering(path string) (Entry, bool) {
	path = filepath.Clean(path)
	var best Entry
	found := false
	for _, e := range t {
		prefix := strings.TrimSuffix(e.Path, "/") + "/"
		if (e.Path == path || strings.HasPrefix(path, prefix)) && len(e.Path) >= len(best.Path) {
			best, found = e, true
		}
	}
	return best, found
}

func (t Table) where(keep func(Entry) bool) Table {
	var out Table
	for _, e := range t {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}
