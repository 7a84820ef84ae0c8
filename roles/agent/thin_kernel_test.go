package agent

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/nvmf"
)

const (
	testThinPool = testGroup + "/tp"
	thinPoolSize = 20 << 20
)

// newThinMachine is a machine whose group has a thin pool of 20 MiB, which tells writers at
// once that it is full.
func newThinMachine(t *testing.T) *machine {
	t.Helper()
	m := newMachine(t)
	hosttest.Need(t, "dm_thin_pool")
	m.backend = "{lvm: {volumeGroup: " + testGroup + ", thinPool: tp, provisioningMode: thin}}"
	m.must(m.run("lvcreate", "--yes", "--type", "thin-pool", "--size", "20m", "--chunksize", "256k", "--poolmetadatasize", "4m", "--name", "tp", testGroup))
	m.must(m.run("lvchange", "--errorwhenfull", "y", testThinPool))
	return m
}

// D-14, H-51: a thin volume's life. A worker that fills the pool is told, keeps what was
// acknowledged, and goes on once the pool is larger; a restore brings the volume back.
func TestAgent_thin_kernel(t *testing.T) {
	m := newThinMachine(t)
	hosttest.Need(t, "nvme_tcp")
	m.mustStart()
	m.must(m.restore())
	spec := storage.Spec{ID: testID, Bytes: 64 << 20, Backend: storage.LVMLV,
		LVM: &storage.LVMParams{VolumeGroup: testGroup, ThinPool: "tp", Mode: lvm.Thin}}
	for range 2 {
		_, err := m.CreateVolume(t.Context(), token(1), spec)
		m.must(err)
	}
	m.must(m.export(2, host1))
	m.fillOverNVMe()

	m.reboot()
	m.mustStart()
	m.must(m.restore(m.item(3, host1)))
	m.wantExport(host1)
	for range 2 {
		m.must(m.unexport(4))
		m.must(m.remove(4))
	}
	m.wantVolumes("tp")
	m.wantFree(2 * thinPoolSize)
}

// fillOverNVMe writes from a worker until the pool is full, and past it.
func (m *machine) fillOverNVMe() {
	m.t.Helper()
	h := nvmf.New("", nvmf.Config{HostNQN: host1, HostID: strings.TrimPrefix(host1, "nqn.2014-08.org.nvmexpress:uuid:")})
	dev, err := h.Attach(m.t.Context(), nvmf.Target{NQN: testNQN, Portal: testPortal, CtrlLossTmo: new(5), ReconnectDelay: new(1)})
	m.must(err)
	f, err := os.OpenFile(dev.Path, os.O_RDWR|os.O_SYNC, 0)
	m.must(err)
	content := bytes.Repeat([]byte{0xa5}, thinPoolSize)
	_, err = f.WriteAt(content, 0)
	m.must(err)
	if _, err := f.WriteAt(content[:4096], thinPoolSize); err == nil {
		m.t.Error("the worker's write past the pool's end succeeded")
	}
	m.wantFull()
	m.must(m.run("lvextend", "--size", "+20m", testThinPool))
	if _, err := f.WriteAt(content[:4096], thinPoolSize); err != nil {
		m.t.Errorf("the worker's write after lvextend = %v", err)
	}
	got := make([]byte, thinPoolSize)
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, content) {
		m.t.Errorf("what was acknowledged is not there: %v", err)
	}
	m.must(errors.Join(f.Close(), h.Detach(m.t.Context(), testNQN, transport.Portal{})))
	clearTargets()
}

// wantFull has every answer say that the pool is full.
func (m *machine) wantFull() {
	m.t.Helper()
	ctx := m.t.Context()
	if _, err := m.ExpandVolume(ctx, token(3), storage.LVMLV, transport.NVMeTCP, testID, 128<<20); !errors.Is(err, storage.ErrNoSpace) {
		m.t.Errorf("ExpandVolume = %v, want ErrNoSpace", err)
	}
	m.wantFree(0)
	health, err := m.Health(ctx)
	m.must(err)
	says := func(s agentrpc.Subsystem) bool {
		return s.Pool == testGroup && !s.Healthy && strings.Contains(s.Message, "thin pool "+testThinPool+" is full")
	}
	if !slices.ContainsFunc(health.Subsystems, says) {
		m.t.Errorf("Health = %+v, want it to say that the thin pool is full", health)
	}
}

// wantFree holds capacity and discovered pool to so many bytes.
func (m *machine) wantFree(bytes int64) {
	m.t.Helper()
	have, err := m.Capacity(m.t.Context(), storage.LVMLV, testGroup)
	if err != nil || have.Available != bytes {
		m.t.Errorf("Capacity = %+v, %v, want %d available", have, err, bytes)
	}
	caps, err := m.Capabilities(m.t.Context())
	if err != nil || len(caps.Pools) != 1 || caps.Pools[0].ThinPool != "tp" || caps.Pools[0].Capacity.Available != bytes {
		m.t.Errorf("Capabilities = %+v, %v, want thin pool tp with %d available", caps, err, bytes)
	}
}
