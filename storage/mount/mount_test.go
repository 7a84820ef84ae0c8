package mount

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host"
)

// ownNamespace puts the rest of the test into a mount namespace that dies with it.
func ownNamespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mount namespace here: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

func dirs(t *testing.T, names ...string) []string {
	t.Helper()
	base := t.TempDir()
	var out []string
	for _, n := range names {
		path := filepath.Join(base, n)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		out = append(out, path)
	}
	return out
}

// threadTable reads the table of the test's thread; /proc/self is the whole process.
func threadTable(t *testing.T) Table {
	t.Helper()
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	got, err := table(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestMountBindUnmount(t *testing.T) {
	ownNamespace(t)
	d := dirs(t, "staging", "rw", "ro")
	staging, rw, ro := d[0], d[1], d[2]
	for _, err := range []error{
		Mount("tmpfs", staging, "tmpfs", []string{"nosuid", "size=1m"}),
		Bind(staging, rw, false), Bind(staging, ro, true),
		os.WriteFile(filepath.Join(rw, "f"), []byte("x"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(ro, "g"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("write below the read-only bind = %v, want EROFS", err)
	}
	table := threadTable(t)
	entry, _ := table.At(staging).Top()
	if got := len(table.Device(entry.Major, entry.Minor)); got != 3 {
		t.Errorf("%d mounts show the filesystem, want 3", got)
	}
	if top, ok := table.At(ro).Top(); !ok || !top.ReadOnly {
		t.Errorf("read-only bind = %+v, %v", top, ok)
	}
	for _, path := range []string{ro, rw, staging} {
		if err := Unmount(path); err != nil {
			t.Error(err)
		}
	}
	if err := Unmount(staging); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Unmount of what is not mounted = %v, want EINVAL", err)
	}
}

func TestUnmount_Busy(t *testing.T) {
	ownNamespace(t)
	dir := dirs(t, "staging")[0]
	if err := Mount("tmpfs", dir, "tmpfs", nil); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "open"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Unmount(dir); !errors.Is(err, unix.EBUSY) {
		t.Errorf("Unmount with an open file = %v, want EBUSY", err)
	}
	f.Close()
	if err := Unmount(dir); err != nil {
		t.Error(err)
	}
}

func TestBind_File(t *testing.T) {
	ownNamespace(t)
	target := filepath.Join(t.TempDir(), "device")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Bind("/dev/null", target, false); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(target, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		t.Errorf("stat of the bound device = %#o, %v, want a character device", st.Mode, err)
	}
	if err := Unmount(target); err != nil {
		t.Error(err)
	}
}

func TestRead_Real(t *testing.T) {
	if table, err := Read(host.Root("")); err != nil || len(table.At("/")) == 0 {
		t.Errorf("Read = %d mounts, %v, want / among them", len(table), err)
	}
}
