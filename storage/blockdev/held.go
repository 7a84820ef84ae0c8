package blockdev

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host"
)

// Held says in words who keeps a device (H-40): devices on top, a device-mapper device with
// its name, mounts in any mount namespace, and programs that have it open. Processes outside
// of this one's PID namespace are not seen, and an export shows nowhere.
func Held(root host.Root, major, minor uint32) string {
	by := slices.Concat(holders(root, major, minor), users(root, major, minor))
	if len(by) == 0 {
		return "no device on top, no mount and no open program is to be seen: an export has it, or a program outside of this container"
	}
	return "held by " + strings.Join(by, ", ")
}

// holders are the devices stacked on a device.
func holders(root host.Root, major, minor uint32) (names []string) {
	entries, _ := os.ReadDir(sysfs(root, major, minor, "holders"))
	for _, e := range entries {
		name := e.Name()
		dm, err := os.ReadFile(root.Path("sys", "block", name, "dm", "name"))
		if err == nil {
			name += " (" + strings.TrimSpace(string(dm)) + ")"
		}
		names = append(names, name)
	}
	return names
}

// users are the mounts and programs. What ends meanwhile does not hold.
func users(root host.Root, major, minor uint32) (by []string) {
	seen := map[string]bool{} // mount namespaces
	processes, _ := filepath.Glob(root.Path("proc/[0-9]*"))
	for _, dir := range processes {
		comm, _ := os.ReadFile(filepath.Join(dir, "comm"))
		who := fmt.Sprintf("%s (pid %s)", strings.TrimSpace(string(comm)), filepath.Base(dir))
		if ns, err := os.Readlink(filepath.Join(dir, "ns/mnt")); err == nil && !seen[ns] {
			seen[ns] = true
			for _, at := range mounts(dir, major, minor) {
				by = append(by, "mount "+at+" of "+who)
			}
		}
		if opens(dir, major, minor) {
			by = append(by, who)
		}
	}
	return by
}

// mounts are where a process sees a filesystem of the device.
func mounts(process string, major, minor uint32) (at []string) {
	f, err := os.Open(filepath.Join(process, "mountinfo"))
	if err != nil {
		return nil
	}
	defer f.Close()
	infos, _ := mountinfo.GetMountsFromReader(f, func(m *mountinfo.Info) (skip, stop bool) {
		return m.Major != int(major) || m.Minor != int(minor), false
	})
	for _, m := range infos {
		at = append(at, m.Mountpoint)
	}
	return at
}

// opens tells whether a process has the device open. Only nodes below /dev are looked at: a
// file of another filesystem might hang.
func opens(process string, major, minor uint32) bool {
	files, _ := filepath.Glob(filepath.Join(process, "fd/*"))
	return slices.ContainsFunc(files, func(file string) bool {
		if to, err := os.Readlink(file); err != nil || !strings.HasPrefix(to, "/dev/") {
			return false
		}
		var st unix.Stat_t
		return unix.Stat(file, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == unix.Mkdev(major, minor)
	})
}
