package blockdev_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// Nothing but a block device answers, and a missing node is told from another failure.
func TestNotABlockDevice(t *testing.T) {
	hosttest.NoLeaks(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(path string) error{
		"Size":    func(p string) error { _, err := blockdev.Size(p); return err },
		"Numbers": func(p string) error { _, _, err := blockdev.Numbers(p); return err },
		"Hold":    func(p string) error { _, err := blockdev.Hold(p); return err },
	}
	for name, call := range calls {
		for _, path := range []string{file, os.DevNull, filepath.Dir(file)} {
			if err := call(path); err == nil || errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s(%s) = %v, want an error", name, path, err)
			}
		}
		if err := call(file + ".gone"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s of a missing node = %v, want fs.ErrNotExist", name, err)
		}
	}
}

// sysfs makes a root with dm device 253:1 held by dm-2 and loop0, and mounted.
func sysfs(t *testing.T) host.Root {
	root := host.Root(t.TempDir())
	for path, content := range map[string]string{
		"sys/dev/block/253:1/dm/uuid":       "LVM-abc\n",
		"sys/dev/block/253:1/holders/dm-2":  "",
		"sys/dev/block/253:1/holders/loop0": "",
		"sys/dev/block/7:0/holders/.keep":   "",
		"sys/block/dm-2/dm/name":            "pillar-local-x\n",
		"proc/1/comm":                       "systemd\n",
		"proc/1/mountinfo":                  "29 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 29 253:1 / /srv rw - ext4 /dev/dm-1 rw\n",
		"proc/2/comm":                       "same-namespace\n",
		"proc/2/mountinfo":                  "30 29 253:1 / /srv rw - ext4 /dev/dm-1 rw\n",
	} {
		file := root.Path(path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []string{"1", "2"} {
		ns := root.Path("proc", pid, "ns/mnt")
		if err := errors.Join(os.MkdirAll(filepath.Dir(ns), 0o755), os.Symlink("mnt:[4026531841]", ns)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDMUUID(t *testing.T) {
	root := sysfs(t)
	if got, err := blockdev.DMUUID(root, 253, 1); got != "LVM-abc" || err != nil {
		t.Errorf("DMUUID = %q, %v, want LVM-abc", got, err)
	}
	for _, minor := range []uint32{0, 9} {
		if _, err := blockdev.DMUUID(root, 7, minor); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("DMUUID(7:%d) = %v, want fs.ErrNotExist", minor, err)
		}
	}
}

// H-40: devices on top by their name, and mounts once for each mount namespace.
func TestHeld(t *testing.T) {
	root := sysfs(t)
	want := "held by dm-2 (pillar-local-x), loop0, mount /srv of systemd (pid 1)"
	if got := blockdev.Held(root, 253, 1); got != want {
		t.Errorf("Held = %q, want %q", got, want)
	}
	if got := blockdev.Held(root, 1, 1); !strings.Contains(got, "an export has it") {
		t.Errorf("Held of no device = %q, want it to guess at an export", got)
	}
}

func TestDevice_kernel(t *testing.T) {
	hosttest.NoLeaks(t)
	disk := hosttest.Disk(t, 0)
	size, err := blockdev.Size(disk)
	if err != nil || size < 1<<20 || size%512 != 0 {
		t.Errorf("Size(%s) = %d, %v", disk, size, err)
	}
	major, minor, err := blockdev.Numbers(disk)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blockdev.DMUUID("", major, minor); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("DMUUID(%s) = %v, want fs.ErrNotExist", disk, err)
	}
}

// A second claim is ErrBusy until the first is released; reading needs no claim.
func TestHold_kernel(t *testing.T) {
	hosttest.NoLeaks(t)
	disk := hosttest.Disk(t, 0)
	release, err := blockdev.Hold(disk)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := blockdev.Hold(disk); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("second Hold = %v, want ErrBusy", err)
	}
	f, err := blockdev.Open(disk, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	start := make([]byte, 512)
	if _, err := f.ReadAt(start, 0); err != nil || !bytes.Equal(start, make([]byte, 512)) {
		t.Errorf("start of a cleared disk = %x, %v", start, err)
	}
	if err := errors.Join(f.Close(), release()); err != nil {
		t.Fatal(err)
	}
	again, err := blockdev.Hold(disk)
	if err != nil {
		t.Fatalf("Hold after release = %v", err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}
