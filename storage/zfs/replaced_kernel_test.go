package zfs_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// B-224, N-14: between the look and the hold an administrator makes the zvol anew. The
// device is not the one that was looked at, and is not held.
func TestPool_replaced_kernel(t *testing.T) {
	p := emptyPool(t)
	hosttest.NoLeaks(t)
	v, err := p.Create(t.Context(), whole("pvc-1", block))
	if err != nil {
		t.Fatal(err)
	}
	looked, err := come(p, "pvc-1")
	if err != nil || looked.Device.Sequence == 0 {
		t.Fatalf("Activate = %+v, %v, want a device", looked, err)
	}
	release, err := blockdev.HoldSame("", v.DevicePath, looked.Device)
	if err != nil {
		t.Fatalf("HoldSame of what was looked at = %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if err := p.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Create(t.Context(), whole("pvc-1", block)); err != nil {
		t.Fatal(err)
	}
	if _, err := come(p, "pvc-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := blockdev.HoldSame("", v.DevicePath, looked.Device); !errors.Is(err, storage.ErrPrecondition) {
		t.Errorf("HoldSame of a device made anew = %v, want ErrPrecondition", err)
	}
}

// come activates a volume, again while its device may yet come.
func come(b storage.Backend, name string) (v storage.Volume, err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if v, err = b.Activate(unended(), name, owner); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return v, err
}

// All of many volumes are there after one look; one that is not, not its owner's or without a
// device, is told apart, and one whose device the kernel owes gets it.
func TestPool_ActivateAll_kernel(t *testing.T) {
	p := emptyPool(t)
	owners := map[string]storage.Owner{"pvc-absent": owner, "pvc-theirs": owner, "pvc-none": owner}
	for i := range 8 {
		name := fmt.Sprint("pvc-", i)
		if _, err := p.Create(t.Context(), whole(name, block)); err != nil {
			t.Fatal(err)
		}
		owners[name] = owner
	}
	tool(t, "zfs", "create", "-V", "16k", below+"pvc-theirs")
	tool(t, "zfs", "create", "-V", "16k", "-o", "volmode=none", "-o", "pillar-csi.bhyoo.com:volume="+string(owner), below+"pvc-none")
	if err := os.RemoveAll("/dev/zvol/" + tank); err != nil { // as without udev
		t.Fatal(err)
	}
	results := p.ActivateAll(t.Context(), owners)
	for name, want := range map[string]error{"pvc-absent": storage.ErrNotFound, "pvc-theirs": storage.ErrForeign, "pvc-none": storage.ErrPrecondition} {
		if err := results[name].Err; !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
	for i := range 8 {
		name := fmt.Sprint("pvc-", i)
		if size, err := blockdev.Size("/dev/zvol/" + below + name); err != nil || size != block || results[name].Err != nil || results[name].Device.Sequence == 0 {
			t.Errorf("%s: %+v; its device has %d bytes, %v", name, results[name], size, err)
		}
	}
	if len(results) != len(owners) {
		t.Errorf("%d results, want %d", len(results), len(owners))
	}
}
