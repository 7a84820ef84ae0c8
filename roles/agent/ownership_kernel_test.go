package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
)

// loseMarks restarts the agent without its fencing marks (B-160).
func (m *machine) loseMarks() {
	m.t.Helper()
	m.must(m.stop())
	m.must(os.RemoveAll(filepath.Join(m.dir, "state/generations")))
	m.mustStart()
}

func (m *machine) byHand() {
	m.t.Helper()
	m.must(m.run("lvcreate", "--yes", "--size", "8m", "--name", testID.Name, testGroup))
}

// N-52: an LV made by hand under the name of a volume whose create never arrived survives
// that volume; the agent is killed before and after every effect of its delete.
func TestAgent_spareCrash_kernel(t *testing.T) {
	m := newMachine(t)
	if !hosttest.InChild(t) {
		m.byHand()
	}
	remove := func() error {
		if err := m.start(); err != nil {
			return err
		}
		return errors.Join(m.unexport(2), m.remove(2))
	}
	hosttest.EachCrash(t, remove, func(t *testing.T) {
		m := m.in(t)
		m.mustStart()
		m.must(m.unexport(2))
		m.must(m.remove(2))
		m.wantVolumes(testID.Name)
		m.forget()
	})
}

// N-52, B-160: what is ours is known by its tag when the marks are gone, and what lost its
// tag is left alone until a human gives it back.
func TestAgent_ownership_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.create(1))
	m.loseMarks()
	m.must(m.create(2))
	m.loseMarks()
	if err := m.DeleteVolume(t.Context(), uidB, storage.LVMLV, testID); err != nil {
		t.Errorf("DeleteVolume by another lifecycle = %v", err)
	}
	m.wantVolumes(testID.Name)
	m.loseMarks()
	m.must(m.remove(3))
	m.wantVolumes()

	m.loseMarks()
	m.must(m.create(1))
	tag := "pillar-volume=" + string(ownerA)
	m.must(m.run("lvchange", "--deltag", tag, testID.String()))
	_, expand := m.ExpandVolume(t.Context(), token(2), storage.LVMLV, transport.NVMeTCP, testID, 64<<20)
	for call, err := range map[string]error{"ExpandVolume": expand, "DeleteVolume": m.remove(2)} {
		if !errors.Is(err, storage.ErrForeign) {
			t.Errorf("%s without the tag = %v, want ErrForeign", call, err)
		}
	}
	m.must(m.run("lvchange", "--addtag", tag, testID.String()))
	m.must(m.remove(2))
	m.wantVolumes()
	m.must(m.stop())
}

// The same of zvols.
func TestAgent_zvolOwnership_kernel(t *testing.T) {
	m := newZvolMachine(t)
	m.mustStart()
	zvol := testParent + "/" + testID.Name
	remove := func(generation int64) error {
		return m.DeleteVolume(t.Context(), token(generation), storage.ZFSZvol, testID)
	}
	m.must(m.run("zfs", "create", "-V", "8M", zvol))
	m.must(remove(2))
	m.wantZvols(zvol)
	m.must(m.run("zfs", "destroy", zvol))
	m.loseMarks()
	_, err := m.CreateVolume(t.Context(), token(1), storage.Spec{ID: testID, Bytes: 8 << 20, Backend: storage.ZFSZvol,
		ZFS: &storage.ZFSParams{Pool: testGroup, ParentDataset: "k8s"}})
	m.must(err)
	m.loseMarks()
	m.must(m.DeleteVolume(t.Context(), uidB, storage.ZFSZvol, testID))
	m.wantZvols(zvol)
	m.loseMarks()
	m.must(remove(2))
	m.wantZvols("")
	m.must(m.stop())
}
