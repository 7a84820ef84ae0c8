package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
)

// machines are a storage node for each backend.
var machines = map[string]func(t *testing.T) *machine{"LVM": newMachine, "ZFS": newZvolMachine}

func onEach(t *testing.T, test func(t *testing.T, m *machine)) {
	for name, machine := range machines {
		t.Run(name, func(t *testing.T) { test(t, machine(t)) })
	}
}

// The agent is killed before and after every effect of a create. The next one answers the
// same request with one LV or zvol, whatever was left.
func TestAgent_createCrash_kernel(t *testing.T) { onEach(t, createCrash) }

func createCrash(t *testing.T, m *machine) {
	create := func() error {
		if err := m.start(); err != nil {
			return err
		}
		return m.create(1)
	}
	hosttest.EachCrash(t, create, func(t *testing.T) {
		m := m.in(t)
		m.mustStart()
		m.must(m.create(1))
		m.wantVolumes(testID.Name)
		m.must(m.remove(2))
		m.wantNothing()
		m.forget()
	})
}

// The agent is killed before and after every effect of what follows. The next one gets
// what a controller sends then: the complete request of the generation that was reached,
// and the interrupted step once more.
func TestAgent_lifeCrash_kernel(t *testing.T) { onEach(t, lifeCrash) }

func lifeCrash(t *testing.T, m *machine) {
	if !hosttest.InChild(t) {
		m.mustStart()
		m.must(m.create(1))
		m.must(m.stop())
	}
	life := func() error {
		if err := m.start(); err != nil {
			return err
		}
		if err := m.restore(); err != nil {
			return err
		}
		return m.steps(2)
	}
	hosttest.EachCrash(t, life, func(t *testing.T) {
		m := m.in(t)
		reached := max(m.generation(), 2)
		m.mustStart()
		if reached < 6 { // later the volume is deleting and not listed
			m.must(m.restore(m.item(reached, hostsAt(reached)...)))
			m.wantVolumes(testID.Name)
			m.wantExport(hostsAt(reached)...)
		}
		m.must(m.steps(reached))
		m.wantNothing()
		m.must(m.stop())

		m.forget()
		m.mustStart()
		m.must(m.create(1))
		m.must(m.stop())
	})
}

// hostsAt answers who is admitted at a generation: the desired export is a function of it.
func hostsAt(generation int64) []string {
	if generation == 3 || generation == 4 {
		return []string{host1}
	}
	return nil
}

// The agent is killed before every effect of what it does after a reboot. The next one gets
// the same request and serves the volume.
func TestAgent_restoreCrash_kernel(t *testing.T) { onEach(t, restoreCrash) }

func restoreCrash(t *testing.T, m *machine) {
	if !hosttest.InChild(t) {
		m.mustStart()
		m.must(m.create(1))
		m.reboot()
	}
	restore := func() error {
		if err := m.start(); err != nil {
			return err
		}
		return m.restore(m.item(2, host1))
	}
	hosttest.EachCrash(t, restore, func(t *testing.T) {
		m := m.in(t)
		m.mustStart()
		m.must(m.restore(m.item(2, host1)))
		m.wantVolumes(testID.Name)
		m.wantExport(host1)
		m.reboot()
	})
	m.mustStart()
	m.must(m.unexport(3))
	m.must(m.remove(3))
	m.wantNothing()
	m.must(m.stop())
}

func (m *machine) item(generation int64, hosts ...string) agentrpc.Item {
	return agentrpc.Item{Token: token(generation), Backend: m.kind, Export: testExport(hosts...), Ready: true}
}

// steps runs a volume's life after its creation, from a generation on.
func (m *machine) steps(from int64) error {
	ctx := context.Background()
	steps := []struct {
		generation int64
		run        func() error
	}{
		{2, func() error { return m.export(2) }},
		{3, func() error {
			return m.AllowInitiator(ctx, token(3), m.kind, transport.NVMeTCP, testID, host1, true)
		}},
		{4, func() error { return m.expand(4) }},
		{5, func() error {
			return m.DenyInitiator(ctx, token(5), m.kind, transport.NVMeTCP, testID, host1)
		}},
		{6, func() error { return m.unexport(6) }},
		{6, func() error { return m.remove(6) }},
	}
	for _, s := range steps {
		if s.generation < from {
			continue
		}
		if err := s.run(); err != nil {
			return err
		}
	}
	return nil
}

// expand grows the volume to 13 MiB, which LVM rounds up to 16, and looks whether it did.
func (m *machine) expand(generation int64) error {
	size, err := m.ExpandVolume(context.Background(), token(generation), m.kind, transport.NVMeTCP, testID, 13<<20)
	if err != nil {
		return err
	}
	want := int64(16 << 20)
	if m.kind == storage.ZFSZvol {
		want = 13 << 20
	}
	device, err := blockdev.Size(m.device())
	for end := time.Now().Add(10 * time.Second); errors.Is(err, fs.ErrNotExist) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // udev takes a zvol's link away while it looks at what changed
		device, err = blockdev.Size(m.device())
	}
	if err == nil && (device != size || size != want) {
		err = fmt.Errorf("expand answers %d bytes, the device has %d, want %d", size, device, want)
	}
	return err
}

// in is the same machine in a subtest.
func (m *machine) in(t *testing.T) *machine {
	sub := *m
	sub.t = t
	return &sub
}

// generation answers the highest generation an agent admitted, 0 if none.
func (m *machine) generation() int64 {
	m.t.Helper()
	marks, err := fencing.Open(filepath.Join(m.dir, "state/generations"))
	m.must(err)
	mark, err := marks.Mark(testID.String())
	m.must(err)
	if mark == nil {
		return 0
	}
	return mark.Generation
}

// forget makes the next lifecycle the first one.
func (m *machine) forget() {
	m.t.Helper()
	m.wipe()
	if _, err := os.Stat(m.dir); !os.IsNotExist(err) {
		m.t.Fatalf("%s: %v, want it gone", m.dir, err)
	}
}
