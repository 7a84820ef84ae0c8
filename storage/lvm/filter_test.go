package lvm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/storage/host"
)

func TestGroup_filter(t *testing.T) {
	const ours, others = "nqn.2026-01.com.example:", "nqn.2020-01.com.example:"
	tests := map[string]struct {
		disks map[string]string // subsystem by disk; empty: just detached
		want  string            // between the names that are never let in and the rest of NVMe
	}{
		"no NVMe disk":          {want: ``},
		"the machine's own":     {disks: map[string]string{"nvme0n1": others + "pci\n"}, want: `"a|^/dev/nvme0n1(p[0-9]+)?$|",`},
		"a tenant's beside one": {disks: map[string]string{"nvme0n1": others + "san\n", "nvme1n1": ours + "vg0.pvc-1\n"}, want: `"a|^/dev/nvme0n1(p[0-9]+)?$|",`},
		"one that is going":     {disks: map[string]string{"nvme1n1": ""}, want: ``},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := host.Root(t.TempDir())
			for disk, nqn := range tt.disks {
				dir := root.Path("sys/block", disk, "device")
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if nqn == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, "subsysnqn"), []byte(nqn), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := New(nil, root, Config{VolumeGroup: "vg0", Tenants: ours}).filter()
			want := `devices{filter=["r|^/dev/zd|","r|^/dev/zvol/|","r|^/dev/mapper/pillar-local-|",` + tt.want + `"r|^/dev/nvme|"]}`
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("filter() = %v, -want +got:\n%s", err, diff)
			}
		})
	}
}

// Whose a disk is must be known before LVM reads it.
func TestGroup_filterUnreadable(t *testing.T) {
	root := host.Root(t.TempDir())
	if err := os.MkdirAll(root.Path("sys/block/nvme0n1/device/subsysnqn"), 0o755); err != nil { // no file
		t.Fatal(err)
	}
	if got, err := New(nil, root, Config{VolumeGroup: "vg0"}).filter(); err == nil {
		t.Errorf("filter() = %s, want an error", got)
	}
}
