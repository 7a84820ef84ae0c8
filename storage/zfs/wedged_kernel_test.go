package zfs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/zfs"
)

// H-26: a pool whose disk does not answer hangs the tools in the kernel, where nothing kills
// them. Calls end with their deadline all the same, another pool's do their work; when the
// disk is back, the same create goes on.
func TestPool_hung_kernel(t *testing.T) {
	hosttest.Need(t, "zfs", "bin:zfs", "dm_mod", "bin:dmsetup")
	destroyPool(tank)
	disk := hosttest.NewLinear(t, "pillar-hangs", hosttest.Disk(t, 0), 256<<20)
	makePool(t, tank, disk.Path)
	makePool(t, second, hosttest.Disk(t, 1))
	p := pool()
	if _, err := p.Create(t.Context(), spec("pvc-1", size)); err != nil {
		t.Fatal(err)
	}
	tool(t, "zpool", "sync", tank)
	tool(t, "dmsetup", "suspend", "--noflush", "--nolockfs", "pillar-hangs")
	answer := func() { tool(t, "dmsetup", "resume", "pillar-hangs") }
	t.Cleanup(answer) // twice does no harm
	for range 2 {     // the second finds what the first has left in the kernel
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		begin := time.Now()
		_, err := p.Create(ctx, spec("pvc-2", size))
		cancel()
		if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > 15*time.Second {
			t.Errorf("Create = %v after %s, want its deadline", err, took)
		}
		wantWorking(t)
	}
	answer()
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err = p.Create(t.Context(), spec("pvc-2", size)); err == nil {
			break
		}
		if errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrForeign) {
			t.Errorf("Create while an earlier one ends = %v, want none of these", err)
		}
	}
	if err != nil {
		t.Errorf("Create = %v", err)
	}
	wantWhole(t, "pvc-1", "pvc-2")
	open(t, "/dev/zvol/"+below+"pvc-2", os.O_RDONLY).Close() // and its device is one
}

// B-213: others took what sparse volumes were promised. That shows, nothing that was written
// is lost, and a volume can be deleted, which makes room: then all is well again.
func TestPool_brim_kernel(t *testing.T) {
	p := emptyPool(t)
	makePool(t, second, hosttest.Disk(t, 1))
	tool(t, "zfs", "create", tank+"/others")
	thin := spec("pvc-2", 1<<30)
	thin.ZFS.Properties = map[string]string{"refreservation": "none"}
	for _, s := range []storage.Spec{spec("pvc-1", size), thin} {
		if _, err := p.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	write(t, "/dev/zvol/"+below+"pvc-1", 0, 0xa5)
	if err := fill(t, "pvc-2", 32<<20); err != nil {
		t.Fatal(err)
	}
	takeAll(t, p)
	wantFull(t, p)
	if err := fill(t, "pvc-2", 64<<20); err == nil {
		t.Error("a full pool took 64 MiB")
	}
	wantWorking(t)
	if err := p.Delete(t.Context(), "pvc-2", owner); err != nil {
		t.Fatalf("Delete in a full pool = %v", err)
	}
	_, err := p.Create(t.Context(), spec("pvc-3", size))
	for end := time.Now().Add(time.Minute); errors.Is(err, storage.ErrNoSpace) && time.Now().Before(end); time.Sleep(time.Second) {
		_, err = p.Create(t.Context(), spec("pvc-3", size)) // blocks are freed bit by bit
	}
	if err := errors.Join(err, p.Health(t.Context())); err != nil {
		t.Errorf("Create once there is room, and Health = %v", err)
	}
	wantByte(t, "/dev/zvol/"+below+"pvc-1", 0, 0xa5)
	if err := fill(t, "pvc-1", size); err != nil {
		t.Errorf("write of what is reserved = %v", err)
	}
	wantWhole(t, "pvc-1", "pvc-3")
}

// takeAll has another dataset reserve what is available. (Filling it with data takes minutes:
// near the end ZFS lets a few blocks through for each transaction group.)
func takeAll(t *testing.T, p *zfs.Pool) {
	t.Helper()
	for taken := int64(0); ; {
		found, err := p.Pool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if found.Capacity.Available == 0 {
			return
		}
		taken += found.Capacity.Available
		tool(t, "zfs", "set", fmt.Sprintf("refreservation=%d", taken), tank+"/others")
	}
}

func wantFull(t *testing.T, p *zfs.Pool) {
	t.Helper()
	if err := p.Health(t.Context()); err == nil || !strings.Contains(err.Error(), "has no room left") {
		t.Errorf("Health = %v, want it to say that there is no room", err)
	}
	sparse := spec("pvc-4", size)
	sparse.ZFS.Properties = map[string]string{"refreservation": "none"}
	for _, s := range []storage.Spec{spec("pvc-3", size), sparse} {
		v, err := p.Create(t.Context(), s)
		if !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("Create in a full pool = %+v, %v, want ErrNoSpace", v, err)
		}
	}
	if v, err := p.Expand(t.Context(), "pvc-1", owner, 2*size); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("Expand in a full pool = %+v, %v, want ErrNoSpace", v, err)
	}
	wantByte(t, "/dev/zvol/"+below+"pvc-1", 0, 0xa5)
}

// fill writes what does not compress, from the start.
func fill(t testing.TB, name string, bytes int64) (err error) {
	f := open(t, "/dev/zvol/"+below+name, os.O_WRONLY)
	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()
	data := make([]byte, 1<<20)
	for at := int64(0); at < bytes; at += int64(len(data)) {
		_, _ = rand.Read(data)
		if _, err := f.WriteAt(data, at); err != nil {
			return err
		}
	}
	return nil
}

// H-37: zfs is killed at any moment of a create, but what it has begun in the kernel goes on.
// Create and Delete converge beside it, and the volume has its device.
func TestPool_cutOff_kernel(t *testing.T) {
	p := emptyPool(t)
	for i := range 12 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i*i)*time.Millisecond)
		_, cut := p.Create(ctx, spec("pvc-1", size))
		cancel()
		if i%2 == 0 {
			if err := p.Delete(t.Context(), "pvc-1", owner); err != nil {
				t.Errorf("Delete after a create that ended with %v = %v", cut, err)
			}
		}
		v, err := p.Create(t.Context(), spec("pvc-1", size))
		if err != nil {
			t.Fatalf("Create again = %v", err)
		}
		open(t, v.DevicePath, os.O_RDONLY).Close()
		if err := p.Delete(t.Context(), "pvc-1", owner); err != nil {
			t.Fatal(err)
		}
	}
	wantWhole(t)
}
