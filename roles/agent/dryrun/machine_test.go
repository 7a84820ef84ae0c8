package dryrun_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/storagetest"
	"github.com/pillar-csi/pillar/storage/zfs"
)

const (
	extent = 4 << 20
	block  = 16 << 10
)

func newMachine(t testing.TB, dir string, pools ...dryrun.Pool) *dryrun.Machine {
	t.Helper()
	m, err := dryrun.NewMachine(dir, pools, func(dryrun.Effect) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func group(m *dryrun.Machine) *lvm.Group {
	return lvm.New(m, m.Root(), lvm.Config{VolumeGroup: "vg0", Open: m.Open})
}

func thinGroup(m *dryrun.Machine) *lvm.Group {
	return lvm.New(m, m.Root(), lvm.Config{VolumeGroup: "vg0", ThinPool: "tp", Open: m.Open})
}

func zvols(m *dryrun.Machine) *zfs.Pool {
	return zfs.New(m, m.Root(), zfs.Config{Pool: "tank", ParentDataset: "k8s/volumes", Ask: m.Ask})
}

func linear(name string, bytes int64) storage.Spec {
	return storage.Spec{
		ID: storage.VolumeID{Pool: "vg0", Name: name}, Bytes: bytes, Backend: storage.LVMLV,
		LVM: &storage.LVMParams{VolumeGroup: "vg0", Mode: lvm.Linear},
	}
}

func thin(name string, bytes int64) storage.Spec {
	s := linear(name, bytes)
	s.LVM = &storage.LVMParams{VolumeGroup: "vg0", ThinPool: "tp", Mode: lvm.Thin}
	return s
}

func zvol(name string, bytes int64) storage.Spec {
	return storage.Spec{
		ID: storage.VolumeID{Pool: "tank", Name: name}, Bytes: bytes, Backend: storage.ZFSZvol,
		ZFS: &storage.ZFSParams{Pool: "tank", ParentDataset: "k8s/volumes"},
	}
}

// world is a machine as the suite wants it.
type world struct{ *dryrun.Machine }

func (w *world) Open(path string) (storagetest.Device, error) {
	return w.Machine.Open(path, os.O_RDWR)
}

func (w *world) Hold(t testing.TB, path string) (release func()) {
	free, err := w.Machine.Hold(path)
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = free() }
}

// tool runs a program as the machine's owner would.
func (w *world) tool(t testing.TB, argv ...string) {
	t.Helper()
	if _, err := w.Run(t.Context(), argv[0], argv[1:]...); err != nil {
		t.Fatal(err)
	}
}

// The backends over a simulated machine keep the contract that they keep over the kernel.
func TestMachine_conformance(t *testing.T) {
	t.Run("lvm", func(t *testing.T) {
		t.Parallel()
		storagetest.Run(t, func(t testing.TB) storagetest.Fixture {
			w := &world{newMachine(t, t.TempDir(), dryrun.Pool{VolumeGroup: "vg0", Bytes: 64 * extent})}
			return storagetest.Fixture{
				Backend: group(w.Machine), Pool: "vg0", Unit: extent, Names: []string{"a.b+c_d-e", "lvol0"},
				Spec: linear, Open: w.Open, Hold: w.Hold, Reboot: func(t testing.TB) { w.Reboot() },
				Stranger: func(t testing.TB, name string, bytes int64) {
					w.tool(t, "lvcreate", "--yes", "--size", fmt.Sprintf("%db", bytes), "--name", name, "vg0")
				},
			}
		})
	})
	t.Run("thin", func(t *testing.T) {
		t.Parallel()
		fixture := func(t testing.TB) storagetest.Fixture {
			w := &world{newMachine(t, t.TempDir(), dryrun.Pool{VolumeGroup: "vg0", ThinPool: "tp", Bytes: 28 * extent})}
			return storagetest.Fixture{
				Backend: thinGroup(w.Machine), Pool: "vg0", Unit: extent, Overcommits: true, Names: []string{"a.b+c_d-e", "lvol0"},
				Spec: thin, Open: w.Open, Hold: w.Hold, Reboot: func(t testing.TB) { w.Reboot() },
				Stranger: func(t testing.TB, name string, bytes int64) {
					w.tool(t, "lvcreate", "--yes", "--type", "thin", "--virtualsize", fmt.Sprintf("%db", bytes), "--thinpool", "tp", "--name", name, "vg0")
				},
			}
		}
		storagetest.Run(t, fixture)
		t.Run("one volume fills the pool", func(t *testing.T) { storagetest.Brim(t, fixture(t)) })
	})
	t.Run("zfs", func(t *testing.T) {
		t.Parallel()
		storagetest.Run(t, func(t testing.TB) storagetest.Fixture {
			w := &world{newMachine(t, t.TempDir(), dryrun.Pool{ZFS: "tank", ParentDataset: "k8s/volumes", Bytes: 64 << 20})}
			return storagetest.Fixture{
				Backend: zvols(w.Machine), Pool: "tank", Unit: block, Names: []string{"a.b:c_d-e"},
				Spec: zvol, Open: w.Open, Hold: w.Hold, Reboot: func(t testing.TB) { w.Reboot() },
				Stranger: func(t testing.TB, name string, bytes int64) {
					w.tool(t, "zfs", "create", "-s", "-V", fmt.Sprint(bytes), "tank/k8s/volumes/"+name)
				},
			}
		})
	})
}

// What the simulation does not know fails: it never looks as if it had been done.
func TestMachine_unknown(t *testing.T) {
	m := newMachine(t, t.TempDir(), dryrun.Pool{VolumeGroup: "vg0", Bytes: 64 * extent}, dryrun.Pool{ZFS: "tank", Bytes: 64 << 20})
	(&world{m}).tool(t, "lvcreate", "--size", "4194304b", "--name", "a", "vg0")
	for _, line := range []string{
		"lvcreate --yes --size 4194304b --mirrors 1 --name b vg0", "lvs --options lv_name,lv_when_full vg0", "lvcreate --size 4m --name b vg0",
		"lvconvert --yes vg0/a", "vgreduce vg0", "zfs create tank/a", "zfs create -s -V 1M -b 4K tank/a", "zfs snapshot tank@a", "zpool scrub tank", "mkfs.ext4 /dev/vg0/a",
	} {
		words := strings.Fields(line)
		if out, err := m.Run(t.Context(), words[0], words[1:]...); err == nil {
			t.Errorf("Run(%s) = %q, want an error", line, out)
		}
	}
}

// What was made is there again in the next process, and a pool may become larger meanwhile.
func TestMachine_survives(t *testing.T) {
	dir := t.TempDir()
	m := newMachine(t, dir, dryrun.Pool{VolumeGroup: "vg0", ThinPool: "tp", Bytes: 64 * extent})
	(&world{m}).tool(t, "lvcreate", "--yes", "--type", "thin", "--virtualsize", "1073741824b", "--thinpool", "tp", "--addtag", "x", "--name", "a", "vg0")
	columns := []string{"--reportformat", "json", "--options", "lv_name,lv_size,lv_layout,pool_lv,lv_tags,lv_active,data_percent", "vg0"}
	const pool = `{"data_percent":"0.00","lv_active":"active","lv_layout":"thin,pool","lv_name":"tp","lv_size":"239075328","lv_tags":"","pool_lv":""}`
	const volume = `{"data_percent":"","lv_active":"%s","lv_layout":"thin,sparse","lv_name":"a","lv_size":"1073741824","lv_tags":"x","pool_lv":"tp"}`
	for _, active := range []string{"active", ""} {
		out, err := m.Run(t.Context(), "lvs", columns...)
		want := `{"report":[{"lv":[` + fmt.Sprintf(volume, active) + `,` + pool + `]}]}`
		if diff := cmp.Diff(want, string(out)); diff != "" || err != nil {
			t.Errorf("lvs = %v (-want +got):\n%s", err, diff)
		}
		m = newMachine(t, dir, dryrun.Pool{VolumeGroup: "vg0", ThinPool: "tp", Bytes: 128 * extent})
	}
	if found, err := group(m).Pool(t.Context()); err != nil || found.Capacity.Total != 128*extent {
		t.Errorf("Pool = %+v, %v, want %d bytes", found, err, 128*extent)
	}
}
