package mount

import (
	"fmt"
	"strings"

	"github.com/pillar-csi/pillar/storage/host/crashpoint"
	"golang.org/x/sys/unix"
)

// Mount mounts the filesystem of type fstype on source at target. Options are those of
// mount(8): the kernel's general ones become flags, the rest is the filesystem's.
func Mount(source, target, fstype string, options []string) error {
	flags, data := Options(options)
	what := fmt.Sprintf("mount %s %s", fstype, target)
	crashpoint.Before(crashpoint.Mount, what)
	err := unix.Mount(source, target, fstype, flags, data)
	crashpoint.After(crashpoint.Mount, what)
	if err != nil {
		return fmt.Errorf("mount %s on %s as %s with %q: %w", source, target, fstype, options, err)
	}
	return nil
}

// Bind shows source, a directory or a file, at target too. A read-only bind is never
// writable, not even for a moment: it is made so before it is attached.
func Bind(source, target string, readOnly bool) error {
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return fmt.Errorf("bind %s: open tree: %w", source, err)
	}
	defer unix.Close(tree)
	attr := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	if readOnly {
		attr.Attr_set = unix.MOUNT_ATTR_RDONLY
	}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		return fmt.Errorf("bind %s: set attributes: %w", source, err)
	}
	what := "bind " + target
	crashpoint.Before(crashpoint.Mount, what)
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	crashpoint.After(crashpoint.Mount, what)
	if err != nil {
		return fmt.Errorf("bind %s on %s: %w", source, target, err)
	}
	return nil
}

// Unmount takes away the top mount at path, as a plain umount2(2). The kernel answers
// EBUSY while anything uses it.
func Unmount(path string) error {
	crashpoint.Before(crashpoint.Mount, "unmount "+path)
	err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	crashpoint.After(crashpoint.Mount, "unmount "+path)
	if err != nil {
		return fmt.Errorf("unmount %s: %w", path, err)
	}
	return nil
}

// general is every option mount(8) turns into a flag; false clears it.
var general = map[string]struct {
	flag uintptr
	set  bool
}{
	"defaults": {0, true},
	"ro":       {unix.MS_RDONLY, true}, "rw": {unix.MS_RDONLY, false},
	"nosuid": {unix.MS_NOSUID, true}, "suid": {unix.MS_NOSUID, false},
	"nodev": {unix.MS_NODEV, true}, "dev": {unix.MS_NODEV, false},
	"noexec": {unix.MS_NOEXEC, true}, "exec": {unix.MS_NOEXEC, false},
	"sync": {unix.MS_SYNCHRONOUS, true}, "async": {unix.MS_SYNCHRONOUS, false},
	"dirsync": {unix.MS_DIRSYNC, true},
	"noatime": {unix.MS_NOATIME, true}, "atime": {unix.MS_NOATIME, false},
	"nodiratime": {unix.MS_NODIRATIME, true}, "diratime": {unix.MS_NODIRATIME, false},
	"relatime": {unix.MS_RELATIME, true}, "norelatime": {unix.MS_RELATIME, false},
	"strictatime": {unix.MS_STRICTATIME, true}, "nostrictatime": {unix.MS_STRICTATIME, false},
	"lazytime": {unix.MS_LAZYTIME, true}, "nolazytime": {unix.MS_LAZYTIME, false},
	"silent": {unix.MS_SILENT, true}, "loud": {unix.MS_SILENT, false},
}

// Options splits mount(8) options into flags of mount(2) and the filesystem's own data.
// A later option wins over an earlier one.
func Options(options []string) (flags uintptr, data string) {
	var own []string
	for _, list := range options {
		for _, o := range strings.Split(list, ",") {
			g, ok := general[o]
			switch {
			case o == "":
			case !ok:
				own = append(own, o)
			case g.set:
				flags |= g.flag
			default:
				flags &^= g.flag
			}
		}
	}
	return flags, strings.Join(own, ",")
}
