package mount

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/storage/host"
	"golang.org/x/sys/unix"
)

const mountinfoText = `21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /dev rw,nosuid shared:2 - devtmpfs udev rw
30 21 259:3 / /k/staging rw,relatime shared:40 - ext4 /dev/nvme0n1 rw
31 21 259:3 / /k/pods/a/mount ro,relatime shared:41 master:7 - ext4 /dev/nvme0n1 rw
32 21 0:5 /nvme1n1 /k/block/device rw,nosuid - devtmpfs udev rw
33 31 259:3 / /k/pods/a/mount rw,relatime - ext4 /dev/nvme0n1 rw
34 21 259:3 /sub\040dir /k/pods/a/sub\040path rw - ext4 /dev/nvme0n1 rw
35 21 0:33 / /private rw - tmpfs tmpfs rw
`

func table(t *testing.T, text string) (Table, error) {
	t.Helper()
	root := host.Root(t.TempDir())
	path := root.Path("proc/self/mountinfo")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return Read(root)
}

func ids(t Table) []int {
	var out []int
	for _, e := range t {
		out = append(out, e.ID)
	}
	return out
}

func TestTable(t *testing.T) {
	table, err := table(t, mountinfoText)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		got  Table
		want []int
	}{
		"stacked, top last":         {table.At("/k/pods/a/mount/"), []int{31, 33}},
		"not a mount point":         {table.At("/k"), nil},
		"path with a space":         {table.At("/k/pods/a/sub path"), []int{34}},
		"by device":                 {table.Device(259, 3), []int{30, 31, 33, 34}},
		"but not at one path":       {table.Device(259, 3).Except("/k/staging"), []int{31, 33, 34}},
		"device nobody has mounted": {table.Device(259, 4), nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, ids(tc.got)); diff != "" {
				t.Errorf("mount IDs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTable_Entry(t *testing.T) {
	table, err := table(t, mountinfoText)
	if err != nil {
		t.Fatal(err)
	}
	want := Entry{ID: 31, Parent: 21, Major: 259, Minor: 3, Root: "/", Path: "/k/pods/a/mount",
		Type: "ext4", Source: "/dev/nvme0n1", ReadOnly: true, Shared: true}
	if diff := cmp.Diff(want, table.At("/k/pods/a/mount")[0]); diff != "" {
		t.Errorf("entry (-want +got):\n%s", diff)
	}
	if top, ok := table.At("/k/pods/a/mount").Top(); !ok || top.ID != 33 || top.ReadOnly || top.Shared {
		t.Errorf("Top = %+v, %v, want the private writable mount 33", top, ok)
	}
}

func TestTable_Covering(t *testing.T) {
	table, err := table(t, mountinfoText)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/k/x": 21, "/private/dir": 35, "/privateer": 21, "/k/staging": 30, "/": 21} {
		if got, ok := table.Covering(path); !ok || got.ID != want {
			t.Errorf("Covering(%s) = %d, %v, want %d", path, got.ID, ok, want)
		}
	}
}

func TestRead_Broken(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "cut": "21 1 8:1 /"} {
		if got, err := table(t, text); err == nil {
			t.Errorf("%s: Read = %v, want an error", name, got)
		}
	}
	if got, err := Read(host.Root(t.TempDir())); err == nil {
		t.Errorf("no file: Read = %v, want an error", got)
	}
}

func TestOptions(t *testing.T) {
	tests := map[string]struct {
		in    []string
		flags uintptr
		data  string
	}{
		"none":              {nil, 0, ""},
		"general":           {[]string{"ro", "noatime"}, unix.MS_RDONLY | unix.MS_NOATIME, ""},
		"filesystem's own":  {[]string{"data=journal", "defaults", "noload"}, 0, "data=journal,noload"},
		"one list":          {[]string{"nosuid,discard,nodev"}, unix.MS_NOSUID | unix.MS_NODEV, "discard"},
		"the later one won": {[]string{"ro", "rw"}, 0, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if flags, data := Options(tc.in); flags != tc.flags || data != tc.data {
				t.Errorf("Options(%q) = %#x, %q, want %#x, %q", tc.in, flags, data, tc.flags, tc.data)
			}
		})
	}
}
