package dryrun

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/pillar-csi/pillar/storage/host"
)

// ModuleState is how far a kernel module is.
type ModuleState int

// A module is there, or modprobe(8) would find it, or this kernel has none, or nobody can
// tell because the host's /lib/modules is not to be seen.
const (
	Loaded ModuleState = iota
	Loadable
	NoModule
	Unknown
)

// Modules are a host's kernel modules.
type Modules struct {
	Root host.Root
}

// options are the kernel's configuration options of the modules (deploy.md 9).
var options = map[string]string{
	"nvmet": "CONFIG_NVME_TARGET", "nvmet_tcp": "CONFIG_NVME_TARGET_TCP",
	"dm_mod": "CONFIG_BLK_DEV_DM", "dm_thin_pool": "CONFIG_DM_THIN_PROVISIONING",
}

// State looks at one module. Built-in modules without parameters show nowhere in sysfs.
func (m Modules) State(module string) ModuleState {
	if _, err := os.Stat(m.Root.Path("sys/module", module)); err == nil {
		return Loaded
	}
	dir := m.Root.Path("lib/modules", m.Release())
	builtin, err := os.ReadFile(path.Join(dir, "modules.builtin"))
	if err == nil && lists(string(builtin), module) {
		return Loaded
	}
	dep, err := os.ReadFile(path.Join(dir, "modules.dep"))
	switch {
	case err == nil && lists(string(dep), module):
		return Loadable
	case err == nil:
		return NoModule
	}
	return Unknown
}

// lists tells whether modules.dep(5) or modules.builtin names the module: one a line, by
// path, with - and _ alike, maybe compressed.
func lists(text, module string) bool {
	for line := range strings.Lines(text) {
		file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		name, _, _ := strings.Cut(path.Base(file), ".ko")
		if strings.ReplaceAll(name, "-", "_") == module {
			return true
		}
	}
	return false
}

// Release is the running kernel's, as uname -r prints it.
func (m Modules) Release() string {
	text, err := os.ReadFile(m.Root.Path("proc/sys/kernel/osrelease"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}

// Fix says how to get a module that is not loaded.
func (m Modules) Fix(module string) string {
	load := fmt.Sprintf("modprobe %s, and list it in /etc/modules-load.d/pillar-csi.conf", module)
	if m.State(module) == Loadable {
		return load
	}
	if module == "zfs" {
		return "install OpenZFS for this kernel (Debian: zfs-dkms and zfsutils-linux, Ubuntu: zfsutils-linux), then " + load
	}
	get := fmt.Sprintf("a kernel with %s (Ubuntu: apt-get install linux-modules-extra-%s)", options[module], m.Release())
	if m.State(module) == NoModule {
		return get + ", then " + load
	}
	return load + "; if there is none, " + get
}
