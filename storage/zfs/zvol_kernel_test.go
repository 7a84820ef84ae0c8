package zfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/zfs"
)

// write fills 4 KiB of a volume.
func write(t testing.TB, path string, at int64, data byte) {
	t.Helper()
	f := open(t, path, os.O_WRONLY)
	_, err := f.WriteAt(bytes.Repeat([]byte{data}, 4096), at)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func wantByte(t testing.TB, path string, at int64, want byte) {
	t.Helper()
	f := open(t, path, os.O_RDONLY)
	got := make([]byte, 4096)
	_, err := f.ReadAt(got, at)
	if err := errors.Join(err, f.Close()); err != nil || got[0] != want || got[4095] != want {
		t.Errorf("%s at byte %d holds %#x, %v, want %#x", path, at, got[0], err, want)
	}
}

// stopUdev makes udevd answer nobody until the test ends.
func stopUdev(t testing.TB) {
	t.Helper()
	tool(t, "udevadm", "settle")
	tool(t, "udevadm", "control", "--stop-exec-queue")
	t.Cleanup(func() { _, _ = host.Exec{}.Run(unended(), "udevadm", "control", "--start-exec-queue") })
}

// H-38, H-69: with a udev daemon that answers nobody, links come and go all the same, and the
// one of a former volume does not lead to the next that has its device.
func TestPool_withoutUdev_kernel(t *testing.T) {
	p := emptyPool(t)
	hosttest.Need(t, "bin:udevadm")
	stopUdev(t)
	for _, name := range []string{"pvc-1", "pvc-2"} { // the second gets the first one's device
		v, err := p.Create(t.Context(), spec(name, block))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Activate(t.Context(), name, owner); err != nil {
			t.Fatal(err)
		}
		if bytes, err := blockdev.Size(v.DevicePath); bytes != block || err != nil {
			t.Errorf("Size(%s) = %d, %v", v.DevicePath, bytes, err)
		}
		tool(t, "zfs", "destroy", below+name) // and not by us: the link stays
	}
	if _, err := p.Create(t.Context(), spec("pvc-1", block)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Create(t.Context(), spec("pvc-3", block)); err != nil {
		t.Fatal(err)
	}
	write(t, "/dev/zvol/"+below+"pvc-1", 0, 0xa5)
	wantByte(t, "/dev/zvol/"+below+"pvc-3", 0, 0)
	for _, name := range []string{"pvc-1", "pvc-2", "pvc-3"} {
		if err := p.Delete(t.Context(), name, owner); err != nil {
			t.Errorf("Delete(%s) = %v", name, err)
		}
		if _, err := os.Lstat("/dev/zvol/" + below + name); !os.IsNotExist(err) {
			t.Errorf("the link of %s = %v, want it gone", name, err)
		}
	}
}

// A device that the kernel failed to make comes when it is asked for. The failure is had here
// by forbidding devices while the zvol is made.
func TestPool_owedDevice_kernel(t *testing.T) {
	p := emptyPool(t)
	parameter(t, "zvol_inhibit_dev", "1")
	t.Cleanup(func() { parameter(t, "zvol_inhibit_dev", "0") })
	v, err := p.Create(t.Context(), spec("pvc-1", block))
	if err != nil {
		t.Fatal(err)
	}
	parameter(t, "zvol_inhibit_dev", "0")
	for range 2 {
		got, err := p.Activate(t.Context(), "pvc-1", owner)
		got.Device = storage.DeviceID{} // the kernel says
		if err != nil || got != v {
			t.Errorf("Activate = %+v, %v, want %+v", got, err, v)
		}
	}
	if size, err := blockdev.Size(v.DevicePath); err != nil || size != v.Bytes {
		t.Errorf("Size of the device = %d, %v, want %d", size, err, v.Bytes)
	}
}

// B-215, H-81: nothing but the zvol itself is destroyed.
func TestPool_children_kernel(t *testing.T) {
	p := emptyPool(t)
	if _, err := p.Create(t.Context(), spec("pvc-1", block)); err != nil {
		t.Fatal(err)
	}
	tool(t, "zfs", "snapshot", below+"pvc-1@backup")
	if err := p.Delete(t.Context(), "pvc-1", owner); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), "pvc-1@backup") {
		t.Errorf("Delete with a snapshot = %v, want ErrPrecondition naming it", err)
	}
	tool(t, "zfs", "clone", below+"pvc-1@backup", below+"copy")
	if err := p.Delete(t.Context(), "pvc-1", owner); !errors.Is(err, storage.ErrPrecondition) {
		t.Errorf("Delete with a clone = %v, want ErrPrecondition", err)
	}
	tool(t, "zfs", "destroy", below+"copy")
	tool(t, "zfs", "destroy", below+"pvc-1@backup")
	if err := p.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete = %v", err)
	}
}

// B-212, B-217, N-52: what pillar did not make is not taken for a volume, and what is no zvol
// or another volume's is neither handed out nor destroyed.
func TestPool_others_kernel(t *testing.T) {
	p := emptyPool(t)
	tool(t, "zfs", "create", below+"files")
	tool(t, "zfs", "create", "-V", "8M", below+"theirs")
	if _, err := p.Create(t.Context(), spec("pvc-1", size)); err != nil {
		t.Fatal(err)
	}
	tool(t, "zfs", "rename", below+"pvc-1", below+"renamed")
	const asks = "another"
	for _, name := range []string{"files", "theirs", "renamed"} {
		s := spec(name, size)
		s.Owner = asks
		if v, err := p.Create(t.Context(), s); !errors.Is(err, storage.ErrForeign) {
			t.Errorf("Create(%s) = %+v, %v, want ErrForeign", name, v, err)
		}
		if _, err := p.Inspect(t.Context(), name); err != nil {
			t.Errorf("Inspect(%s) = %v", name, err)
		}
	}
	for _, name := range []string{"files", "theirs", "renamed"} {
		_, activate := p.Activate(t.Context(), name, asks)
		_, expand := p.Expand(t.Context(), name, asks, 2*size)
		for call, err := range map[string]error{"Activate": activate, "Expand": expand, "Delete": p.Delete(t.Context(), name, asks)} {
			if !errors.Is(err, storage.ErrForeign) {
				t.Errorf("%s(%s) = %v, want ErrForeign", call, name, err)
			}
		}
	}
	if out := tool(t, "zfs", "list", "-H", "-o", "name", "-r", "-d", "1", tank+"/"+parent); strings.Count(out, "\n") != 3 {
		t.Errorf("zfs list = %q, want all three", out)
	}
}

// A crash between the two transactions in which zfs set grows volume and reservation.
func TestPool_tornReservation_kernel(t *testing.T) {
	p := emptyPool(t)
	if _, err := p.Create(t.Context(), spec("pvc-1", size)); err != nil {
		t.Fatal(err)
	}
	tool(t, "zfs", "set", "refreservation=1M", below+"pvc-1")
	if _, err := p.Expand(t.Context(), "pvc-1", owner, size); err != nil {
		t.Errorf("Expand = %v", err)
	}
	wantWhole(t, "pvc-1")
}

// H-15: a volmode arrives, and with it a device without partitions, also while somebody has
// the one open that the kernel made first; the same create again leaves the device alone.
func TestPool_volmode_kernel(t *testing.T) {
	p := emptyPool(t)
	s := whole("pvc-1", size)
	stop := hold(t, time.Second)
	v, err := p.Create(t.Context(), s)
	stop()
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, v.DevicePath, os.O_RDWR)
	defer f.Close()
	wantAlone(t, f)
	if again, err := p.Create(t.Context(), s); err != nil || again != v {
		t.Errorf("Create again = %+v, %v, want %+v", again, err, v)
	}
	if _, err := f.WriteAt(make([]byte, 4096), 0); errors.Join(err, f.Sync()) != nil {
		t.Errorf("write to the open device = %v", err)
	}
	if got := tool(t, "zfs", "get", "-H", "-o", "value", "volmode", below+"pvc-1"); got != "dev" {
		t.Errorf("volmode = %q, want dev", got)
	}
}

// wantAlone holds a device to having no partitions, whatever it contains.
func wantAlone(t *testing.T, f *os.File) {
	t.Helper()
	major, minor, err := blockdev.FileNumbers(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/ext_range", major, minor))
	if err != nil || strings.TrimSpace(string(got)) != "1" {
		t.Errorf("ext_range = %q, %v, want 1: no partitions", got, err)
	}
}

// A device that is being replaced is not handed out: somebody has it open, so the kernel
// waits with the new one.
func TestPool_volmodePending_kernel(t *testing.T) {
	p := emptyPool(t)
	v, err := p.Create(t.Context(), spec("pvc-1", size))
	if err != nil {
		t.Fatal(err)
	}
	f := open(t, v.DevicePath, os.O_RDONLY)
	tool(t, "zfs", "set", "volmode=dev", below+"pvc-1")
	if got, err := p.Activate(t.Context(), "pvc-1", owner); !errors.Is(err, storage.ErrPrecondition) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Activate = %+v, %v, want ErrPrecondition of a device that is yet to come", got, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	f = open(t, v.DevicePath, os.O_RDONLY)
	defer f.Close()
	wantAlone(t, f)
}

// A parent, or a machine, whose volumes have no devices: the error says so, and what to do.
func TestPool_volmodeNone_kernel(t *testing.T) {
	for name, none := range map[string]func(t *testing.T){
		"parent": func(t *testing.T) { tool(t, "zfs", "set", "volmode=none", tank+"/"+parent) },
		"module": func(t *testing.T) {
			parameter(t, "zvol_volmode", "3")
			t.Cleanup(func() { parameter(t, "zvol_volmode", "1") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := emptyPool(t)
			none(t)
			wantNone(t, p)
		})
	}
}

func wantNone(t *testing.T, p *zfs.Pool) {
	t.Helper()
	if _, err := p.Create(t.Context(), spec("pvc-1", size)); err != nil {
		t.Fatal(err)
	}
	fix := "zfs set volmode=full " + below + "pvc-1"
	if _, err := p.Activate(t.Context(), "pvc-1", owner); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), fix) {
		t.Errorf("Activate = %v, want ErrPrecondition that says %q", err, fix)
	}
	tool(t, strings.Fields(fix)...)
	wantByte(t, "/dev/zvol/"+below+"pvc-1", 0, 0)
	s := spec("pvc-2", size)
	s.ZFS.Properties = map[string]string{"volmode": "full"}
	if _, err := p.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	wantByte(t, "/dev/zvol/"+below+"pvc-2", 0, 0)
}

// Properties arrive as they were asked for; one that zfs refuses is the caller's mistake, and
// leaves nothing.
func TestPool_properties_kernel(t *testing.T) {
	p := emptyPool(t)
	s := spec("pvc-1", 4097)
	s.ZFS.Properties = map[string]string{"volblocksize": "4K", "compression": "zstd-3", "sync": "always", "com.example:note": "a b=c"}
	if v, err := p.Create(t.Context(), s); err != nil || v.Bytes != 8192 {
		t.Errorf("Create = %+v, %v, want two blocks of 4 KiB", v, err)
	}
	got := tool(t, "zfs", "get", "-Hp", "-o", "value", "volblocksize,compression,sync,com.example:note", below+"pvc-1")
	if want := "4096\nzstd-3\nalways\na b=c"; got != want {
		t.Errorf("properties = %q, want %q", got, want)
	}
	for key, value := range map[string]string{"volblocksize": "5000", "compression": "best", "quota": "1G", "used": "1", "nonsense": "x",
		"snapshot_limit": "many", "volmode": "raw", "com.example:long": strings.Repeat("x", 9000)} {
		s := spec("pvc-2", block)
		s.ZFS.Properties = map[string]string{key: value}
		if v, err := p.Create(t.Context(), s); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("Create with %s=%s = %+v, %v, want ErrInvalid", key, value, v, err)
		}
	}
	if list, err := p.List(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("List = %v, %v, want the first alone", list, err)
	}
}
