package dryrun_test

import (
	"fmt"
	"os"
	"testing"

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
	return lvm.New(m, m.Root(), lvm.Config{VolumeGroup: "vg0", Mode: lvm.Linear, Open: m.Open})
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
	t.Run("zfs", func(t *testing.T) {
		t.Parallel()
		storagetest.Run(t, func(t testing.TB) storagetest.Fixture {
			w := &world{newMachine(t, t.TempDir(), dryrun.Pool{ZFS: "tank", ParentDataset: "k8s/volumes", Bytes: 64 << 20})}
			return storagetest.Fixture{
				Backend: zvols(w.Machine), Pool: "tank", Unit: block, Names: []string{"a.b:c_d-e"},
				Spec: zvol, Open: w.Open, Hold: w.Hold, Reboot: func(t testing.TB) { w.Reboot() },
				Stranger: func(t testing.TB, name string, bytes int64) {
					w.tool(t, "zfs", "create", "-V", fmt.Sprint(bytes), "tank/k8s/volumes/"+name)
				},
			}
		})
	})
}
