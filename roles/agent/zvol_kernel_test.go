package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
)

const testParent = testGroup + "/k8s"

// newZvolMachine is a machine whose pool is ZFS's, of the same name.
func newZvolMachine(t *testing.T) *machine {
	t.Helper()
	hosttest.Need(t, "zfs", "nvmet", "nvmet_tcp", "bin:zfs")
	m := &machine{t: t, dir: filepath.Join(os.TempDir(), "pillar-agent-test"), group: testGroup,
		backend: "{zfs: {pool: " + testGroup + ", parentDataset: k8s}}"}
	clean := func() {
		m.wipe()
		_ = m.run("zpool", "destroy", "-f", testGroup)
	}
	clean() // of a test that was killed
	m.must(m.run("zpool", "create", "-f", "-o", "cachefile=none", "-O", "mountpoint=none", testGroup, hosttest.Disk(t, 0)))
	t.Cleanup(clean)
	m.must(m.run("zfs", "create", testParent))
	return m
}

func (m *machine) wantZvols(want string) {
	m.t.Helper()
	out, err := host.Exec{}.Run(context.Background(), "zfs", "list", "-H", "-o", "name", "-t", "volume", "-r", testParent)
	if got := strings.TrimSpace(string(out)); err != nil || got != want {
		m.t.Errorf("zvols = %q, %v, want %q", got, err, want)
	}
}

// A zvol's life: created, exported, grown in use, restored after its pool was away, deleted.
func TestAgent_zvol_kernel(t *testing.T) {
	m := newZvolMachine(t)
	m.mustStart()
	m.must(m.restore())
	ctx := t.Context()
	spec := storage.Spec{ID: testID, Bytes: 8 << 20, Backend: storage.ZFSZvol,
		ZFS: &storage.ZFSParams{Pool: testGroup, ParentDataset: "k8s", Properties: map[string]string{"volmode": "dev"}}}
	for range 2 {
		_, err := m.CreateVolume(ctx, token(1), spec)
		m.must(err)
	}
	for range 2 {
		_, err := m.ExportVolume(ctx, token(2), storage.ZFSZvol, testExport(host1))
		m.must(err)
	}
	m.must(os.Remove("/dev/zvol/" + testParent + "/pvc-1")) // the check does not stand on links
	if err := m.DeleteVolume(ctx, token(2), storage.ZFSZvol, testID); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), testNQN) {
		t.Errorf("DeleteVolume while exported = %v, want ErrPrecondition that names %s", err, testNQN)
	}
	size, err := m.ExpandVolume(ctx, token(3), storage.ZFSZvol, transport.NVMeTCP, testID, 13<<20)
	if err != nil || size != 13<<20 {
		t.Errorf("ExpandVolume = %d, %v, want 13 MiB", size, err)
	}
	if got, err := blockdev.Size("/dev/zvol/" + testParent + "/pvc-1"); err != nil || got != size {
		t.Errorf("Size of the device = %d, %v, want %d", got, err, size)
	}
	m.must(m.stop())

	clearTargets() // as a reboot does
	m.must(m.run("zpool", "export", testGroup))
	m.must(m.run("zpool", "import", "-d", "/dev", "-o", "cachefile=none", testGroup))
	m.mustStart()
	m.must(m.restore(agentrpc.Item{Token: token(3), Backend: storage.ZFSZvol, Export: testExport(host1), Ready: true}))
	m.wantZvols(testParent + "/pvc-1")
	if got, err := os.ReadFile(filepath.Join(nvmetDir, "subsystems", testNQN, "namespaces/1/enable")); err != nil || strings.TrimSpace(string(got)) != "1" {
		t.Errorf("enable = %q, %v, want 1", got, err)
	}
	for range 2 {
		m.must(m.UnexportVolume(ctx, token(4), storage.ZFSZvol, transport.NVMeTCP, testID))
		m.must(m.DeleteVolume(ctx, token(4), storage.ZFSZvol, testID))
	}
	m.wantZvols("")
}
