package dryrun_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/storage/host"
)

// plant makes files below a root.
func plant(t testing.TB, root host.Root, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := root.Path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestModules(t *testing.T) {
	const release, dep, builtin = "proc/sys/kernel/osrelease", "lib/modules/6.1.0-1/modules.dep", "lib/modules/6.1.0-1/modules.builtin"
	tests := map[string]struct {
		files  map[string]string
		module string
		want   dryrun.ModuleState
		fix    string // part of it
	}{
		"loaded":                {map[string]string{"sys/module/nvmet/refcnt": "0"}, "nvmet", dryrun.Loaded, ""},
		"built in":              {map[string]string{builtin: "kernel/drivers/nvme/target/nvmet.ko\n"}, "nvmet", dryrun.Loaded, ""},
		"compressed, with dash": {map[string]string{dep: "kernel/drivers/nvme/target/nvmet-tcp.ko.zst: kernel/x.ko.zst\n"}, "nvmet_tcp", dryrun.Loadable, "modprobe nvmet_tcp, and list it"},
		"only another's need":   {map[string]string{dep: "kernel/y.ko: kernel/drivers/nvme/target/nvmet.ko\n"}, "nvmet", dryrun.NoModule, "CONFIG_NVME_TARGET (Ubuntu: apt-get install linux-modules-extra-6.1.0-1)"},
		"no /lib/modules":       {nil, "dm_mod", dryrun.Unknown, "modprobe dm_mod"},
		"no OpenZFS":            {map[string]string{dep: "kernel/y.ko:\n"}, "zfs", dryrun.NoModule, "zfs-dkms"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			mods := dryrun.Modules{Root: host.Root(t.TempDir())}
			plant(t, mods.Root, map[string]string{release: "6.1.0-1\n"})
			plant(t, mods.Root, tt.files)
			if got := mods.State(tt.module); got != tt.want {
				t.Errorf("State(%s) = %v, want %v", tt.module, got, tt.want)
			}
			if got := mods.Fix(tt.module); !strings.Contains(got, tt.fix) {
				t.Errorf("Fix(%s) = %q, want %q in it", tt.module, got, tt.fix)
			}
		})
	}
}
