package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

func TestParseSize(t *testing.T) {
	tests := map[string]struct {
		text string
		want int64
		ok   bool
	}{
		"GiB":      {text: "1GiB", want: 1 << 30, ok: true},
		"MiB":      {text: "64MiB", want: 64 << 20, ok: true},
		"no unit":  {text: "1"},
		"zero":     {text: "0GiB"},
		"negative": {text: "-1GiB"},
		"decimal":  {text: "1GB"},
		"relative": {text: "disk.img"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseSize(test.text)
			if got != test.want || (err == nil) != test.ok {
				t.Errorf("parseSize(%q) = %d, %v, want %d, ok %v", test.text, got, err, test.want, test.ok)
			}
		})
	}
}

func TestJudgeConsole(t *testing.T) {
	troubles := (&uml{}).troubles()
	tests := map[string]struct {
		text  string
		ready bool
		err   string
	}{
		"starting":     {text: "mmapper_init - find_iomem failed\n"},
		"ready":        {text: "noise\npillar-lab: ready\n", ready: true},
		"no disk":      {text: "ubda: Can't open \"x\": errno = 11\npillar-lab: ready\n", err: "errno = 11"},
		"no network":   {text: "user_init_tap: init failed\n", err: "user_init_tap"},
		"init says so": {text: "pillar-lab: boot failed: load x: no such file\n", err: "load x"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			ready, err := judgeConsole(test.text, troubles)
			if ready != test.ready || (err == nil) != (test.err == "") {
				t.Fatalf("judgeConsole() = %v, %v, want %v, %q", ready, err, test.ready, test.err)
			}
			if err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("judgeConsole() = %v, want %q", err, test.err)
			}
		})
	}
}

func TestLost(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"dead":                {ErrDown, true},
		"silent":              {ErrSilent, true},
		"not to be reached":   {refused, true},
		"a program failed":    {&ExitError{Code: 1}, false},
		"the time was over":   {context.DeadlineExceeded, false},
		"the caller has left": {context.Canceled, false},
	} {
		if got := Lost(fmt.Errorf("storage-1: %w", test.err)); got != test.want {
			t.Errorf("%s: Lost() = %v, want %v", name, got, test.want)
		}
	}
}

func TestParseStat(t *testing.T) {
	got, err := parseStat("4711 (a) (b R) T 1 42 42 0 -1 4194560 1 0 0 0 150 50 7 8 20 0 1 0 99 1 2\n")
	want := stat{pid: 4711, group: 42, state: "T", used: 2 * time.Second}
	if got != want || err != nil {
		t.Errorf("parseStat() = %+v, %v, want %+v", got, err, want)
	}
	for _, line := range []string{"", "1 (a) S 1 2", "1 a S 1 1 1 0 -1 0 1 0 0 0 1 1", "1 (a) S 1 x 1 0 -1 0 1 0 0 0 1 1"} {
		if got, err := parseStat(line); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", line, got)
		}
	}
}

func TestReturns(t *testing.T) {
	const sp, text = 0x1000, 0x60000000
	var stack []byte
	for _, w := range []uint64{7, 0, 0x1018, // what a function keeps
		0x1030, text + 1, 8, // 0x1018: a frame
		0x1040, text + 2, 0, text + 3} {
		stack = binary.LittleEndian.AppendUint64(stack, w)
	}
	got := returns(stack, sp, func(a uint64) bool { return a >= text })
	if diff := cmp.Diff([]uint64{text + 1, text + 2, text + 3}, got); diff != "" {
		t.Errorf("returns() (-want +got):\n%s", diff)
	}
}

func TestMconsoleRequest(t *testing.T) {
	got := mconsoleRequest("sysrq l")
	if head := "\xbe\xba\xfe\xca\x02\x00\x00\x00\x07\x00\x00\x00sysrq l\x00"; !strings.HasPrefix(string(got), head) || len(got) != 524 {
		t.Errorf("mconsoleRequest() = %d bytes, %q..., want 524, %q...", len(got), got[:20], head)
	}
}

func TestLoadOrder(t *testing.T) {
	const dep = `kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/lib/crc16.ko
kernel/fs/jbd2/jbd2.ko:
kernel/lib/crc16.ko:
kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net_failover.ko kernel/net/core/failover.ko
kernel/drivers/nvme/host/nvme-tcp.ko: kernel/lib/crc16.ko
`
	got := loadOrder(dep, []string{"virtio_net", "ext4", "nvme_tcp", "virtio_pci"})
	want := []string{
		"kernel/net/core/failover.ko", "kernel/drivers/net/net_failover.ko", "kernel/drivers/net/virtio_net.ko",
		"kernel/lib/crc16.ko", "kernel/fs/jbd2/jbd2.ko", "kernel/fs/ext4/ext4.ko",
		"kernel/drivers/nvme/host/nvme-tcp.ko",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("loadOrder() (-want +got):\n%s", diff)
	}
}

func TestInitrd(t *testing.T) {
	var tree initrd
	tree.dir("dev")
	tree.add("a/b/file", 0o755, []byte("content"))
	tree.add("a/other", 0o644, nil)
	var out bytes.Buffer
	if _, err := tree.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio(1) is not installed, it reads the archive back")
	}
	dir := t.TempDir()
	unpack := exec.Command(cpio, "-idu", "--quiet")
	unpack.Dir, unpack.Stdin = dir, &out
	if text, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v: %s", err, text)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "a/b/file")); string(got) != "content" || err != nil {
		t.Errorf("a/b/file = %q, %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "dev")); err != nil || !info.IsDir() {
		t.Errorf("dev: %v, %v, want a directory", info, err)
	}
}

func TestGuest_shares(t *testing.T) {
	g := &Guest{lab: &Lab{HostDir: "/run/host", CacheDir: "/c"}, Spec: GuestSpec{
		ShareRO: map[string]string{"/repo": "/repo"},
		Share:   map[string]string{"/repo/out": "/tmp/out"},
	}}
	want := []share{{"/c", "/cache", true}, {"/run/host", "/host", true}, {"/repo", "/repo", true}, {"/tmp/out", "/repo/out", false}}
	if diff := cmp.Diff(want, g.shares(), cmp.AllowUnexported(share{})); diff != "" {
		t.Errorf("shares() (-want +got):\n%s", diff)
	}
}

// A cache without ZFS: only a guest that names it notices.
func TestTrees(t *testing.T) {
	cache := &artifacts.Cache{Dir: t.TempDir(), Offline: true}
	for kind, m := range map[Kind]machine{UML: &uml{cache: cache}, QEMU: &qemu{cache: cache}} {
		root, modules, err := trees(t.Context(), m, GuestSpec{Modules: []string{"nvmet"}}, "root", "modules")
		if root != "root" || modules != "modules" || err != nil {
			t.Errorf("%s: trees(nvmet) = %s, %s, %v, want root, modules", kind, root, modules, err)
		}
		for _, spec := range []GuestSpec{{Modules: []string{"nvmet", "zfs"}}, {ZFS: true}} {
			_, _, err = trees(t.Context(), m, spec, "root", "modules")
			if !errors.Is(err, artifacts.ErrMissing) || !strings.Contains(err.Error(), "`lab build zfs`") {
				t.Errorf("%s: trees(zfs) = %v, want ErrMissing that names the command", kind, err)
			}
		}
		if has, err := (&Lab{kind: m}).HasZFS(t.Context()); has || err != nil {
			t.Errorf("%s: HasZFS() = %v, %v, want false", kind, has, err)
		}
	}
}
