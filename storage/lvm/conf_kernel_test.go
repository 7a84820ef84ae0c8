package lvm_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/lvm"
)

// otherwise is an lvm.conf(5) that has the tools speak and act in another way than by default.
const otherwise = `report { binary_values_as_numeric=1 list_item_separator="+" compact_output=1 }
log { prefix="LVM: " command_names=1 report_command_log=1 silent=1 }
activation { activation_mode="partial" }
`

// A machine's lvm.conf may have them speak otherwise: they are understood all the same.
func TestGroup_machineSettings_kernel(t *testing.T) {
	thinPool(t, 20)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "lvm.conf"), []byte(otherwise), 0o600); err != nil {
		t.Fatal(err)
	}
	run := host.Exec{Env: []string{"LVM_SYSTEM_DIR=" + dir}}
	g := lvm.New(run, "", lvm.Config{VolumeGroup: vg, ThinPool: tp})
	if err := g.Health(t.Context()); err != nil {
		t.Errorf("Health = %v", err)
	}
	for _, s := range []storage.Spec{spec("pvc-1", extent), thin("pvc-2", extent)} {
		if _, err := g.Inspect(t.Context(), s.ID.Name); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("Inspect of nothing = %v, want ErrNotFound", err)
		}
		for _, do := range []string{"Create", "Create again"} {
			if _, err := g.Create(t.Context(), s); err != nil {
				t.Errorf("%s = %v", do, err)
			}
		}
		if _, err := g.Create(t.Context(), spec("pvc-3", 1<<50)); !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("Create of too much = %v, want ErrNoSpace", err)
		}
		if err := g.Delete(t.Context(), s.ID.Name, owner); err != nil {
			t.Errorf("Delete = %v", err)
		}
	}
}
