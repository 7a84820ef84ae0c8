package lvm_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/storagetest"
)

const tp = "tp"

// chunk is the thin pools' chunk size in bytes: of pools of 20 MiB or 100 MiB each is a whole
// number of hundredths of a percent, so that LVM's figures are exact.
const chunk = 256 << 10

// thinPool makes a thin pool of so many MiB in a group of its own.
func thinPool(t testing.TB, mib int) *lvm.Group {
	t.Helper()
	emptyGroup(t)
	hosttest.Need(t, "dm_thin_pool", "bin:thin_check")
	tool(t, "lvcreate", "--yes", "--type", "thin-pool", "--size", fmt.Sprintf("%dm", mib), "--chunksize", "256k", "--poolmetadatasize", "4m", "--name", tp, vg)
	return thinGroup()
}

func thinGroup() *lvm.Group {
	return lvm.New(host.Exec{}, "", lvm.Config{VolumeGroup: vg, ThinPool: tp, Mode: lvm.Thin})
}

func thin(name string, bytes int64) storage.Spec {
	s := spec(name, bytes)
	s.LVM = &storage.LVMParams{VolumeGroup: vg, ThinPool: tp, Mode: lvm.Thin}
	return s
}

func TestGroup_thinContract_kernel(t *testing.T) {
	thinPool(t, 20)
	fixture := func(t testing.TB) storagetest.Fixture {
		hosttest.NoLeaks(t)
		t.Cleanup(func() {
			_, _ = distribution(unended(), "lvremove", "--yes", "--select", "pool_lv="+tp, vg)
		})
		return storagetest.Fixture{
			Backend:     thinGroup(), // after a reboot it is a new process that looks
			Pool:        vg,
			Unit:        extent,
			Slack:       4 * chunk,
			Overcommits: true,
			Names:       []string{"a.b+c_d-e", strings.Repeat("n", 100)},
			Spec:        thin,
			Open:        func(path string) (storagetest.Device, error) { return blockdev.Open(path, os.O_RDWR) },
			Hold: func(t testing.TB, path string) func() {
				release, err := blockdev.Hold(path)
				if err != nil {
					t.Fatal(err)
				}
				return func() { _ = release() }
			},
			Stranger: func(t testing.TB, name string, bytes int64) {
				tool(t, "lvcreate", "--yes", "--type", "thin", "--virtualsize", fmt.Sprintf("%db", bytes), "--thinpool", tp, "--name", name, vg)
			},
			Reboot: func(t testing.TB) { tool(t, "vgchange", "--activate", "n", vg) },
		}
	}
	storagetest.Run(t, fixture)
	t.Run("one volume fills the pool", func(t *testing.T) { storagetest.Brim(t, fixture(t)) })
}
