package zfs_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/zfs"
)

// second is a pool beside the one of the tests.
const second = "pillar-test1"

func secondPool() (*zfs.Pool, storage.Spec) {
	s := spec("pvc-1", block)
	s.ID.Pool, s.ZFS.Pool = second, second
	return zfs.New(host.Exec{}, "", zfs.Config{Pool: second, ParentDataset: parent}), s
}

// wantWorking holds another pool to going on within a few seconds.
func wantWorking(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	p, s := secondPool()
	_, create := p.Create(ctx, s)
	_, activate := p.Activate(ctx, "pvc-1", owner)
	if err := errors.Join(create, activate, p.Delete(ctx, "pvc-1", owner)); err != nil {
		t.Errorf("the other pool = %v", err)
	}
}

// A pool exported under the agent says nothing about its volumes (B-204); when it is back,
// so are they, with their data, and other devices' numbers have changed.
func TestPool_exported_kernel(t *testing.T) {
	p := emptyPool(t)
	makePool(t, second, hosttest.Disk(t, 1))
	for _, name := range []string{"pvc-0", "pvc-1"} {
		if _, err := p.Create(t.Context(), spec(name, size)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, "/dev/zvol/"+below+"pvc-1", 0, 0xa5)
	if err := p.Delete(t.Context(), "pvc-0", owner); err != nil {
		t.Fatal(err)
	}
	tool(t, "zpool", "export", tank)
	_, create := p.Create(t.Context(), spec("pvc-1", size))
	_, inspect := p.Inspect(t.Context(), "pvc-1")
	_, activate := p.Activate(t.Context(), "pvc-1", owner)
	_, expand := p.Expand(t.Context(), "pvc-1", owner, 2*size)
	_, list := p.List(t.Context())
	for call, err := range map[string]error{"Create": create, "Inspect": inspect, "Activate": activate, "Expand": expand,
		"List": list, "Delete": p.Delete(t.Context(), "pvc-1", owner)} {
		if !errors.Is(err, storage.ErrPrecondition) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s without the pool = %v, want ErrPrecondition", call, err)
		}
	}
	if _, err := p.Pool(t.Context()); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Pool = %v, want ErrNotFound", err)
	}
	wantWorking(t)
	tool(t, "zpool", "import", "-d", "/dev", "-o", "cachefile=none", tank)
	wantByte(t, "/dev/zvol/"+below+"pvc-1", 0, 0xa5)
	wantWhole(t, "pvc-1")
}

// H-26: a pool whose disk is gone is suspended. Its calls end with that word, another pool's
// do their work; when the disk is back, so is the pool.
func TestPool_suspended_kernel(t *testing.T) {
	hosttest.Need(t, "zfs", "bin:zfs", "dm_mod", "bin:dmsetup")
	destroyPool(tank)
	disk := hosttest.Disk(t, 0)
	lost := hosttest.NewLinear(t, "pillar-suspends", disk, 256<<20)
	makePool(t, tank, lost.Path)
	makePool(t, second, hosttest.Disk(t, 1))
	p := pool()
	if _, err := p.Create(t.Context(), spec("pvc-1", size)); err != nil {
		t.Fatal(err)
	}
	setTable(t, "error")
	t.Cleanup(func() { bringBack(t, disk) })
	done := make(chan error, 1)
	go func() { done <- p.Delete(t.Context(), "pvc-1", owner) }() // the one that finds out
	waitSuspended(t, p)
	_, create := p.Create(t.Context(), spec("pvc-2", size))
	_, inspect := p.Inspect(t.Context(), "pvc-1")
	for call, err := range map[string]error{"Create": create, "Inspect": inspect, "Health": p.Health(t.Context())} {
		if err == nil || !strings.Contains(err.Error(), "is SUSPENDED") {
			t.Errorf("%s = %v, want it to say SUSPENDED", call, err)
		}
	}
	wantWorking(t)
	bringBack(t, disk)
	t.Logf("the delete that was under way: %v", <-done)
	if err := p.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete of the pool that is back = %v", err)
	}
	wantWhole(t)
}

func setTable(t *testing.T, target string) {
	t.Helper()
	tool(t, "dmsetup", "suspend", "--noflush", "--nolockfs", "pillar-suspends")
	tool(t, "dmsetup", "load", "pillar-suspends", "--table", "0 524288 "+target)
	tool(t, "dmsetup", "resume", "pillar-suspends")
}

// bringBack gives the pool its disk again, if it has not.
func bringBack(t *testing.T, disk string) {
	t.Helper()
	setTable(t, "linear "+disk+" 0")
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Second) {
		if _, err = (host.Exec{}).Run(unended(), "zpool", "clear", tank); err == nil {
			return
		}
	}
	t.Fatalf("zpool clear = %v\n%s", err, tool(t, "zpool", "status", tank))
}

func waitSuspended(t *testing.T, p *zfs.Pool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		err := p.Health(t.Context())
		if err != nil && strings.Contains(err.Error(), "is SUSPENDED") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("Health = %v, the pool is not suspended", err)
		}
	}
}

// B-283: a pool that lost a disk serves, and says so.
func TestPool_degraded_kernel(t *testing.T) {
	needZFS(t)
	destroyPool(tank)
	a, b := hosttest.Disk(t, 0), hosttest.Disk(t, 1)
	tool(t, "zpool", "create", "-f", "-o", "cachefile=none", "-O", "mountpoint=none", tank, "mirror", a, b)
	t.Cleanup(func() { destroyPool(tank) })
	tool(t, "zfs", "create", "-p", tank+"/"+parent)
	p := pool()
	if err := p.Health(t.Context()); err != nil {
		t.Errorf("Health = %v", err)
	}
	tool(t, "zpool", "offline", tank, b)
	if err := p.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "is DEGRADED") {
		t.Errorf("Health = %v, want it to say DEGRADED", err)
	}
	if _, err := p.Pool(t.Context()); err != nil {
		t.Errorf("Pool = %v", err)
	}
	if _, err := p.Create(t.Context(), spec("pvc-1", size)); err != nil {
		t.Errorf("Create = %v", err)
	}
}

// B-213, B-453: space that is reserved, a quota of the parent, and volumes that promise more.
func TestPool_full_kernel(t *testing.T) {
	p := emptyPool(t)
	tool(t, "zfs", "set", "quota=64M", tank+"/"+parent)
	if _, err := p.Create(t.Context(), spec("pvc-1", 32<<20)); err != nil {
		t.Fatal(err)
	}
	found, err := p.Pool(t.Context())
	if err != nil || found.Capacity.Total > 64<<20 || found.Capacity.Available > 32<<20 {
		t.Errorf("Pool = %+v, %v, want the quota", found, err)
	}
	for _, bytes := range []int64{33 << 20, found.Capacity.Available} { // the reservation adds to the second
		if v, err := p.Create(t.Context(), spec("pvc-2", bytes)); !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("Create(%d) = %+v, %v, want ErrNoSpace", bytes, v, err)
		}
		if v, err := p.Expand(t.Context(), "pvc-1", owner, 32<<20+bytes); !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("Expand by %d = %+v, %v, want ErrNoSpace", bytes, v, err)
		}
	}
	wantWhole(t, "pvc-1")
	if v, err := p.Inspect(t.Context(), "pvc-1"); err != nil || v.Bytes != 32<<20 {
		t.Errorf("Inspect = %+v, %v, want what it was", v, err)
	}
	thin := spec("pvc-2", 1<<40)
	thin.ZFS.Properties = map[string]string{"refreservation": "none", "volblocksize": "64k"}
	if v, err := p.Create(t.Context(), thin); err != nil || v.Bytes != 1<<40 {
		t.Errorf("Create of a sparse volume = %+v, %v", v, err)
	}
	if v, err := p.Expand(t.Context(), "pvc-2", owner, 1<<40+1); err != nil || v.Bytes != 1<<40+64<<10 {
		t.Errorf("Expand of a sparse volume = %+v, %v, want one block more", v, err)
	}
}

// What zfs create cannot give while somebody has the new device open, as udev does, it takes
// back by trying to destroy the zvol until the device is closed, without a pause: a kernel
// with one CPU and no preemption never gets to the close (zfs_ioc_create in
// module/zfs/zfs_ioctl.c). So nothing that can fail is left to zfs create.
func TestPool_fullHeld_kernel(t *testing.T) {
	p := emptyPool(t)
	stopUdev(t)
	tool(t, "zfs", "set", "quota=64M", tank+"/"+parent)
	found, err := p.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop := hold(t, 3*time.Second)
	defer stop()
	if v, err := p.Create(t.Context(), spec("pvc-1", found.Capacity.Available)); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("Create = %+v, %v, want ErrNoSpace", v, err)
	}
	wantWhole(t)
}

// hold opens every zvol device as soon as it appears and keeps it for some time.
func hold(t testing.TB, long time.Duration) (stop func()) {
	done, seen := make(chan struct{}), map[string]bool{}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			devices, _ := filepath.Glob("/dev/zd*")
			for _, d := range devices {
				if seen[d] {
					continue
				}
				if f, err := os.Open(d); err == nil {
					seen[d] = true
					open.Go(func() { time.Sleep(long); f.Close() })
				}
			}
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	return func() { close(done); open.Wait() }
}
