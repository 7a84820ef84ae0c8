package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

const testParent = testGroup + "/k8s"

// newZvolMachine is a machine whose pool is ZFS's, of the same name.
func newZvolMachine(t *testing.T) *machine {
	t.Helper()
	hosttest.Need(t, "zfs", "nvmet", "nvmet_tcp", "bin:zfs")
	m := &machine{t: t, dir: filepath.Join(os.TempDir(), "pillar-agent-test"), group: testGroup,
		backend: "{zfs: {pool: " + testGroup + ", parentDataset: k8s}}", kind: storage.ZFSZvol}
	if hosttest.InChild(t) {
		return m
	}
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
	for range 2 {
		m.must(m.create(1))
	}
	for range 2 {
		m.must(m.export(2, host1))
	}
	m.must(os.Remove(m.device())) // the check does not stand on links
	if err := m.remove(2); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), testNQN) {
		t.Errorf("DeleteVolume while exported = %v, want ErrPrecondition that names %s", err, testNQN)
	}
	m.must(m.expand(3))

	m.reboot()
	m.mustStart()
	m.must(m.restore(m.item(3, host1)))
	m.wantVolumes(testID.Name)
	m.wantExport(host1)
	for range 2 {
		m.must(m.unexport(4))
		m.must(m.remove(4))
	}
	m.wantNothing()
}
