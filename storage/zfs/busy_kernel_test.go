package zfs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/zfs"
)

// madeActive makes a volume and answers its device's path.
func madeActive(t *testing.T, p *zfs.Pool) string {
	t.Helper()
	v, err := p.Create(t.Context(), spec("pvc-1", size))
	if err != nil {
		t.Fatal(err)
	}
	open(t, v.DevicePath, os.O_RDONLY).Close()
	return v.DevicePath
}

// wantHeld holds a delete to being refused with the holder's name, and to its work once it
// is let go.
func wantHeld(t *testing.T, p *zfs.Pool, holder string, letGo func()) {
	t.Helper()
	err := p.Delete(t.Context(), "pvc-1", owner)
	if !errors.Is(err, storage.ErrBusy) || !strings.Contains(err.Error(), "held by ") || !strings.Contains(err.Error(), holder) {
		t.Errorf("Delete = %v, want ErrBusy naming %s", err, holder)
	}
	wantWhole(t, "pvc-1")
	letGo()
	if err := p.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete = %v", err)
	}
	wantWhole(t)
}

// H-40: a refused delete names the device on top.
func TestPool_heldByDevice_kernel(t *testing.T) {
	p := emptyPool(t)
	hosttest.Need(t, "dm_mod", "bin:dmsetup")
	device := madeActive(t, p)
	tool(t, "dmsetup", "create", "--noudevsync", "pillar-claim", "--table", "0 8 linear "+device+" 0")
	wantHeld(t, p, "(pillar-claim)", func() { tool(t, "dmsetup", "remove", "--noudevsync", "pillar-claim") })
}

// H-40: ... the mount ...
func TestPool_heldByMount_kernel(t *testing.T) {
	p := emptyPool(t)
	hosttest.Need(t, "bin:mkfs.ext4")
	dir := t.TempDir()
	device := madeActive(t, p)
	tool(t, "mkfs.ext4", "-q", device)
	if err := unix.Mount(device, dir, "ext4", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	unmount := func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Fatal(err)
		}
	}
	wantHeld(t, p, "mount "+dir+" of ", unmount)
}

// H-40: ... and the program.
func TestPool_heldByProgram_kernel(t *testing.T) {
	p := emptyPool(t)
	f := open(t, madeActive(t, p), os.O_RDONLY)
	sleep := exec.Command("sleep", "1000")
	sleep.ExtraFiles = []*os.File{f}
	if err := errors.Join(sleep.Start(), f.Close()); err != nil {
		t.Fatal(err)
	}
	end := func() { _, _ = sleep.Process.Kill(), sleep.Wait() }
	defer end()
	wantHeld(t, p, fmt.Sprintf("sleep (pid %d)", sleep.Process.Pid), end)
}
