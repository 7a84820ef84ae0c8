package artifacts

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCache_get(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	var builds atomic.Int32
	a := artifact{name: "thing", key: []string{"1"}, make: func(_ context.Context, b *builder) error {
		builds.Add(1)
		return os.WriteFile(filepath.Join(b.out, "file"), []byte("made"), 0o644)
	}}
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			dir, err := c.get(t.Context(), a)
			if err != nil {
				t.Error(err)
				return
			}
			if got, _ := os.ReadFile(filepath.Join(dir, "file")); string(got) != "made" {
				t.Errorf("artifact holds %q, want made", got)
			}
		})
	}
	all.Wait()
	if builds.Load() != 1 {
		t.Errorf("five callers built %d times, want once", builds.Load())
	}
}

func TestCache_get_failure(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	broken := errors.New("broken")
	a := artifact{name: "thing", make: func(_ context.Context, b *builder) error {
		os.WriteFile(filepath.Join(b.out, "half"), nil, 0o644)
		return broken
	}}
	if _, err := c.get(t.Context(), a); !errors.Is(err, broken) {
		t.Errorf("get() = %v, want the build's error", err)
	}
	left, err := filepath.Glob(filepath.Join(c.Dir, "*thing*"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestCache_get_offline(t *testing.T) {
	c := &Cache{Dir: t.TempDir(), Offline: true}
	if _, err := c.get(t.Context(), artifact{name: "thing"}); !errors.Is(err, ErrMissing) {
		t.Errorf("get() = %v, want ErrMissing", err)
	}
}

func TestBuilder_run(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	a := artifact{name: "thing", make: func(ctx context.Context, b *builder) error {
		if err := b.pipe(ctx, b.out, []string{"echo", "through"}, []string{"tee", "file"}); err != nil {
			return err
		}
		return b.run(ctx, b.out, []string{"WORD=why"}, "sh", "-c", "cat file; echo $WORD >&2; exit 3")
	}}
	_, err := c.get(t.Context(), a)
	if err == nil || !strings.Contains(err.Error(), "through\nwhy") {
		t.Errorf("get() = %v, want the program's last output", err)
	}
}

func TestSourcesList(t *testing.T) {
	const tail = " main contrib\n"
	signed := "deb [signed-by=" + keyring + "] "
	list := func(mirror, security string) string {
		return signed + mirror + " bookworm" + tail + signed + mirror + " bookworm-updates" + tail +
			signed + security + " bookworm-security" + tail + signed + mirror + " bookworm-backports" + tail
	}
	tests := map[string]struct{ targets, want string }{
		"the machine's mirrors": {
			targets: "http://mirror.test/debian/ bookworm\nhttps://mirror.test/sec/ bookworm-security\nhttps://other.test/x/ nodistro\n",
			want:    list("http://mirror.test/debian", "https://mirror.test/sec"),
		},
		"a machine of another release": {
			targets: "http://mirror.test/ubuntu/ noble\n",
			want:    list("http://deb.debian.org/debian", "http://deb.debian.org/debian-security"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, sourcesList(test.targets)); diff != "" {
				t.Errorf("sourcesList() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAcquireOptions(t *testing.T) {
	dump := "Acquire=\nAcquire::http::Proxy=http://proxy.test:3128\nAcquire::Check-Date=false\nAcquire::Languages=\nAcquire::https::=\nAcquire::GzipIndexes=true\n"
	want := []string{"Acquire::Check-Date=false", "Acquire::http::Proxy=http://proxy.test:3128"}
	if diff := cmp.Diff(want, acquireOptions(dump)); diff != "" {
		t.Errorf("acquireOptions() (-want +got):\n%s", diff)
	}
}

func TestNotInstalled(t *testing.T) {
	got := notInstalled("make installed\nbc not-installed\nlibmake installed\n", []string{"make", "bc", "flex"})
	if diff := cmp.Diff([]string{"bc", "flex"}, got); diff != "" {
		t.Errorf("notInstalled() (-want +got):\n%s", diff)
	}
}

func TestSourcePackage(t *testing.T) {
	for version, want := range map[string]string{"6.1.176-1": "linux-source-6.1", "6.12.95-1~bpo12+1": "linux-source-6.12"} {
		if got := sourcePackage(version); got != want {
			t.Errorf("sourcePackage(%s) = %s, want %s", version, got, want)
		}
	}
}

func TestImagePackage(t *testing.T) {
	got, err := imagePackage("linux-image-6.12.95+deb12-amd64 (= 6.12.95-1~bpo12+1)")
	if want := "linux-image-6.12.95+deb12-amd64=6.12.95-1~bpo12+1"; got != want || err != nil {
		t.Errorf("imagePackage() = %q, %v, want %q", got, err, want)
	}
	if _, err := imagePackage("kmod"); err == nil {
		t.Error("imagePackage(kmod) succeeded")
	}
}

func TestQEMUModules(t *testing.T) {
	tests := map[string]bool{
		"kernel/drivers/nvme/target/nvmet.ko.xz":          true,
		"kernel/drivers/net/virtio_net.ko.xz":             true,
		"kernel/drivers/net/ethernet/intel/e1000.ko.xz":   false,
		"kernel/drivers/gpu/drm/drm.ko.xz":                false,
		"kernel/net/9p/9pnet_virtio.ko.xz":                true,
		"kernel/fs/ext4/ext4.ko.xz":                       true,
		"kernel/drivers/target/iscsi/iscsi_target_mod.ko": true,
	}
	for path, want := range tests {
		if got := qemuModules.MatchString(path); got != want {
			t.Errorf("%s: kept = %v, want %v", path, got, want)
		}
	}
}

func TestKernelPayload(t *testing.T) {
	image := make([]byte, 4096)
	copy(image[0x202:], "HdrS")
	image[0x1f1] = 1 // two sectors before the protected-mode part
	binary.LittleEndian.PutUint32(image[0x248:], 0x40)
	binary.LittleEndian.PutUint32(image[0x24c:], 20)
	want := append([]byte{0x28, 0xb5, 0x2f, 0xfd}, bytes.Repeat([]byte{7}, 12)...)
	copy(image[1024+0x40:], want)
	got, err := kernelPayload(image)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("kernelPayload() = %x, %v, want %x", got, err, want)
	}
	for name, broken := range map[string][]byte{"short": image[:100], "cut off": image[:1024+0x45], "empty": nil} {
		if _, err := kernelPayload(broken); err == nil {
			t.Errorf("kernelPayload(%s) succeeded", name)
		}
	}
}
