package dryrun_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// recorder runs nothing and remembers what.
type recorder struct{ ran []string }

func (r *recorder) Run(_ context.Context, name string, args ...string) ([]byte, error) {
	r.ran = append(r.ran, strings.Join(append([]string{name}, args...), " "))
	return nil, nil
}

// loaded are modules that are there.
func loaded(t testing.TB, modules ...string) dryrun.Modules {
	root := host.Root(t.TempDir())
	for _, m := range modules {
		plant(t, root, map[string]string{"sys/module/" + m + "/refcnt": "0"})
	}
	return dryrun.Modules{Root: root}
}

func TestReader_Run(t *testing.T) {
	tests := map[string]string{ // "": refused
		"vgs --config a{} --options vg_name vg0": `vgs --nolocking --config a{} devices{hints="none"} --options vg_name vg0`,
		"lvs --options lv_name vg0/a":            "lvs --nolocking --options lv_name vg0/a",
		"zfs list -H tank":                       "zfs list -H tank",
		"zfs get volsize tank/a":                 "zfs get volsize tank/a",
		"zpool list -H -o health tank":           "zpool list -H -o health tank",
		"lvcreate --name a vg0":                  "",
		"lvchange --activate y vg0/a":            "",
		"lvremove --yes vg0/a":                   "",
		"vgmknodes vg0/a":                        "",
		"zfs create -V 1 tank/a":                 "",
		"zfs destroy tank/a":                     "",
		"zfs":                                    "",
		"zpool import tank":                      "",
		"modprobe nvmet":                         "",
		"mkfs.ext4 /dev/vg0/a":                   "",
	}
	for line, want := range tests {
		t.Run(line, func(t *testing.T) {
			words := strings.Fields(line)
			rec := &recorder{}
			_, err := dryrun.Reader{Runner: rec, Modules: loaded(t, "zfs", "dm_mod")}.Run(t.Context(), words[0], words[1:]...)
			if diff := cmp.Diff(want, strings.Join(rec.ran, "\n")); diff != "" || (err == nil) != (want != "") {
				t.Errorf("Run(%s) = %v (-want +ran):\n%s", line, err, diff)
			}
		})
	}
}

// Tools whose device would load a module are kept from it.
func TestReader_modules(t *testing.T) {
	rec := &recorder{}
	r := dryrun.Reader{Runner: rec, Modules: loaded(t)}
	for _, tool := range []string{"zfs", "zpool"} {
		if _, err := r.Run(t.Context(), tool, "list", "tank"); !errors.Is(err, dryrun.ErrModule) {
			t.Errorf("Run(%s) = %v, want ErrModule", tool, err)
		}
	}
	if _, err := r.Run(t.Context(), "vgs", "vg0"); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"vgs --driverloaded n --nolocking vg0"}, rec.ran); diff != "" {
		t.Errorf("ran (-want +got):\n%s", diff)
	}
}

// On a real kernel, too, whose /dev/zfs loads the module when it is opened.
func TestReader_modules_kernel(t *testing.T) {
	hosttest.Need(t, "zfs", "bin:zfs", "bin:zpool", "bin:modprobe")
	if _, err := (host.Exec{}).Run(t.Context(), "modprobe", "-r", "zfs"); err != nil {
		t.Fatal(err)
	}
	r := dryrun.Reader{Runner: host.Exec{}}
	for _, tool := range []string{"zfs", "zpool"} {
		if _, err := r.Run(t.Context(), tool, "list", "-H", "tank"); !errors.Is(err, dryrun.ErrModule) {
			t.Errorf("Run(%s) = %v, want ErrModule", tool, err)
		}
	}
	if _, err := os.Stat("/sys/module/zfs"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the module after a dry run: %v, want it not loaded", err)
	}
}

// LVM reads a group as well with the options it is given here as without.
func TestReader_lvm_kernel(t *testing.T) {
	hosttest.Need(t, "dm_mod", "bin:lvm")
	const group = "pillar-reader"
	lvm := func(argv ...string) {
		t.Helper()
		if _, err := (host.Exec{Env: []string{"DM_DISABLE_UDEV=1"}}).Run(context.Background(), argv[0], argv[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	lvm("vgcreate", "--yes", group, hosttest.Disk(t, 0))
	t.Cleanup(func() { lvm("vgremove", "--yes", "--force", group) })
	for name, mods := range map[string]dryrun.Modules{"with dm_mod": {}, "without dm_mod": loaded(t)} {
		out, err := dryrun.Reader{Runner: host.Exec{}, Modules: mods}.Run(t.Context(), "vgs", "--config", "backup{backup=0}", "--noheadings", "--options", "vg_name", group)
		if got := strings.TrimSpace(string(out)); err != nil || got != group {
			t.Errorf("%s: vgs = %q, %v, want %s", name, got, err, group)
		}
	}
}
