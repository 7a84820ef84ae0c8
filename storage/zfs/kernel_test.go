package zfs_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/storagetest"
	"github.com/pillar-csi/pillar/storage/zfs"
)

const (
	owner  = storage.Owner("0b1e0c62-3a5e-4f62-9d0a-3f1f0f8c1a01")
	tank   = "pillar-test0"
	parent = "k8s/volumes"
	block  = 16 << 10 // the default volblocksize
	below  = tank + "/" + parent + "/"
)

func unended() context.Context { return context.Background() }

// tool runs a ZFS tool as a machine's owner would.
func tool(t testing.TB, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(unended(), time.Minute) // it runs in a cleanup, too
	defer cancel()
	out, err := host.Exec{}.Run(ctx, argv[0], argv[1:]...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	return strings.TrimSpace(string(out))
}

// emptyPool makes a pool on a spare disk for the time of the test.
func emptyPool(t testing.TB) *zfs.Pool {
	t.Helper()
	hosttest.Need(t, "zfs", "bin:zfs", "bin:zpool")
	destroyPool(tank) // of a test that was killed
	makePool(t, tank, hosttest.Disk(t, 0))
	return pool()
}

func makePool(t testing.TB, name, disk string) {
	t.Helper()
	tool(t, "zpool", "create", "-f", "-o", "cachefile=none", "-O", "mountpoint=none", name, disk)
	t.Cleanup(func() { destroyPool(name) })
	tool(t, "zfs", "create", "-p", name+"/"+parent)
}

func destroyPool(name string) {
	_, _ = host.Exec{}.Run(unended(), "zpool", "destroy", "-f", name)
	_ = os.RemoveAll("/dev/zvol/" + name)
}

func pool() *zfs.Pool {
	return zfs.New(host.Exec{}, "", zfs.Config{Pool: tank, ParentDataset: parent})
}

func spec(name string, bytes int64) storage.Spec {
	return storage.Spec{
		ID: storage.VolumeID{Pool: tank, Name: name}, Owner: owner, Bytes: bytes, Backend: storage.ZFSZvol,
		ZFS: &storage.ZFSParams{Pool: tank, ParentDataset: parent},
	}
}

// whole is a request for a device without partitions.
func whole(name string, bytes int64) storage.Spec {
	s := spec(name, bytes)
	s.ZFS.Properties = map[string]string{"volmode": "dev"}
	return s
}

// open opens a volume's device as an export does: after Activate, and again while the device
// may yet come. (udev, which lags behind, may take a link away that leads to the next device.)
func open(t testing.TB, path string, flag int) *os.File {
	t.Helper()
	name := strings.TrimPrefix(path, "/dev/zvol/"+below)
	for end := time.Now().Add(20 * time.Second); ; {
		_, err := pool().Activate(unended(), name, owner)
		if err == nil {
			var f *os.File
			if f, err = blockdev.Open(path, flag); err == nil {
				return f
			}
		}
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestPool_contract_kernel(t *testing.T) {
	p := emptyPool(t)
	storagetest.Run(t, func(t testing.TB) storagetest.Fixture {
		hosttest.NoLeaks(t)
		t.Cleanup(func() {
			tool(t, "udevadm", "settle") // it opens what it has not seen, and destroy finds it busy
			tool(t, "zfs", "destroy", "-r", tank+"/"+parent)
			tool(t, "zfs", "create", "-p", tank+"/"+parent)
		})
		return storagetest.Fixture{
			Backend: p,
			Pool:    tank,
			Unit:    block,
			Slack:   4 << 20,
			Names:   []string{"a.b:c_d-e", "lvol0", strings.Repeat("n", 200)},
			Spec:    spec,
			Open:    func(path string) (storagetest.Device, error) { return open(t, path, os.O_RDWR), nil },
			Hold: func(t testing.TB, path string) func() {
				f := open(t, path, os.O_RDONLY|unix.O_EXCL)
				return func() { _ = f.Close() }
			},
			Stranger: func(t testing.TB, name string, bytes int64) {
				tool(t, "zfs", "create", "-V", fmt.Sprint(bytes), below+name)
			},
			Reboot: func(t testing.TB) {
				tool(t, "zpool", "export", tank)
				tool(t, "zpool", "import", "-d", "/dev", "-o", "cachefile=none", tank)
			},
		}
	})
}

// parameter sets one of the zfs module's.
func parameter(t testing.TB, name, value string) {
	t.Helper()
	if err := os.WriteFile("/sys/module/zfs/parameters/"+name, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}
