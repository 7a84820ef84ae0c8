package exports_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agent/exports"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/nvmet"
)

// N-12, P-13: the hosts of a storage node that reboots try to reconnect each second, each for
// its own volume. From Linux 6.11 on one that reaches a listener without its volume gives that
// up at once, and the pod's device is gone. None may be lost.
func TestGate_Restore_reconnect_kernel(t *testing.T) {
	hosttest.Need(t, "nvmet", "nvmet_tcp", "nvme_tcp", "bin:ip")
	m := &loopback{t: t, disk: hosttest.Disk(t, 0)}
	m.clear()
	t.Cleanup(func() { m.disconnect(); m.clear() })
	for i := range 50 {
		m.items = append(m.items, item(fmt.Sprintf("vg0/pvc-%d", i), 1))
		m.items[i].Export.Portal = transport.Portal{Address: "127.0.0.1", Port: 14420}
	}
	m.restore()
	for range 3 {
		m.connect()
		m.reboot()
		m.restore()
		m.wantAllBack()
	}
}

// loopback is a storage node and the hosts of its volumes in one kernel. All volumes are on
// one disk: nvmet does not mind.
type loopback struct {
	t     *testing.T
	disk  string
	items []agentrpc.Item
}

func (m *loopback) Path(storage.BackendType, storage.VolumeID) (string, error) { return m.disk, nil }

func (m *loopback) Devices(_ context.Context, _ storage.BackendType, _ string, owners map[string]storage.Owner, _ time.Time) map[string]exports.Device {
	found := map[string]exports.Device{}
	for name := range owners {
		found[name] = exports.Device{Path: m.disk}
	}
	return found
}

// must ends the test, also when it cleans up.
func (m *loopback) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

// restore is an agent that starts and gets the complete request.
func (m *loopback) restore() {
	m.t.Helper()
	store, err := fencing.Open(m.t.TempDir())
	m.must(err)
	target := nvmet.New(configfs.On(slow{configfs.Kernel("")}), nvmet.Config{
		IdentityDir: m.t.TempDir(),
		Quiet:       nvmet.KeepOut, Unquiet: func(err error) { m.t.Logf("not quiet: %v", err) },
	})
	hold := func(string, storage.DeviceID) (func() error, error) { return func() error { return nil }, nil }
	gate := exports.NewGate(fence{store}, m, map[transport.Kind]exports.Target{transport.NVMeTCP: named{target}}, hold, time.Now)
	results, err := gate.Restore(m.t.Context(), m.items)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	m.must(errors.Join(err, gate.Check()))
}

// slow is a machine whose every link takes so long that hosts are sure to come in between.
type slow struct{ configfs.FS }

func (s slow) Symlink(target, name string) error {
	err := s.FS.Symlink(target, name)
	time.Sleep(20 * time.Millisecond)
	return err
}

// named is the target as the agent has it.
type named struct{ *nvmet.Target }

func (named) ID(volume string) (string, error) { return nvmet.NQN(volume) }

const nvmetDir = "/sys/kernel/config/nvmet/"

// clear removes every object of the target.
func (m *loopback) clear() {
	for _, pattern := range []string{"ports/*/subsystems/*", "subsystems/*/allowed_hosts/*", "subsystems/*/namespaces/*", "subsystems/*", "ports/*", "hosts/*"} {
		paths, _ := filepath.Glob(nvmetDir + pattern)
		for _, p := range paths {
			os.Remove(p)
		}
	}
}

// connect connects a host to each volume that has none. One queue is enough to be lost.
func (m *loopback) connect() {
	m.t.Helper()
	have := m.controllers()
	for _, it := range m.items {
		if _, ok := have[nqn(it)]; ok {
			continue
		}
		f, err := os.OpenFile("/dev/nvme-fabrics", os.O_RDWR, 0)
		m.must(err)
		_, err = fmt.Fprintf(f, "nqn=%s,transport=tcp,traddr=%s,trsvcid=%d,nr_io_queues=1,reconnect_delay=1,ctrl_loss_tmo=600",
			nqn(it), it.Export.Portal.Address, it.Export.Portal.Port)
		m.must(errors.Join(err, f.Close()))
	}
}

func nqn(it agentrpc.Item) string {
	return nvmet.Prefix + strings.ReplaceAll(it.Export.Volume, "/", ".")
}

// disconnect removes every controller.
func (m *loopback) disconnect() {
	paths, _ := filepath.Glob("/sys/class/nvme/nvme*/delete_controller")
	for _, path := range paths {
		os.WriteFile(path, []byte("1"), 0) // one that is gone is as well
	}
}

// reboot is one as hosts see it: the network falls silent before an object goes. It ends when
// every host tries to reconnect.
func (m *loopback) reboot() {
	m.t.Helper()
	m.network("down")
	m.clear()
	m.network("up")
	for end := time.Now().Add(time.Minute); m.inState("connecting") < len(m.items); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%d hosts of %d noticed the reboot", m.inState("connecting"), len(m.items))
		}
	}
}

func (m *loopback) network(state string) {
	m.t.Helper()
	_, err := host.Exec{}.Run(m.t.Context(), "ip", "link", "set", "lo", state)
	m.must(err)
}

// controllers answers the state of the host's controllers by their subsystem.
func (m *loopback) controllers() map[string]string {
	m.t.Helper()
	states := map[string]string{}
	paths, err := filepath.Glob("/sys/class/nvme/nvme*")
	m.must(err)
	for _, path := range paths {
		nqn, err := os.ReadFile(path + "/subsysnqn")
		state, gone := os.ReadFile(path + "/state")
		if err == nil && gone == nil { // else it went meanwhile
			states[strings.TrimSpace(string(nqn))] = strings.TrimSpace(string(state))
		}
	}
	return states
}

func (m *loopback) inState(want string) (n int) {
	for _, state := range m.controllers() {
		if state == want {
			n++
		}
	}
	return n
}

// wantAllBack waits until no host is on its way, and wants each of them connected.
func (m *loopback) wantAllBack() {
	m.t.Helper()
	for end := time.Now().Add(time.Minute); m.inState("live") < len(m.controllers()) && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	states, lost := m.controllers(), 0
	for _, it := range m.items {
		if states[nqn(it)] != "live" {
			lost++
		}
	}
	m.t.Logf("the last volume followed the first after %v", m.window())
	if lost > 0 {
		m.t.Errorf("%d of %d hosts are lost", lost, len(m.items))
	}
}

// window is how much later than the first the last link was made, to a tick of the kernel.
func (m *loopback) window() time.Duration {
	links, err := filepath.Glob(nvmetDir + "ports/*/subsystems/*")
	m.must(err)
	var first, last time.Time
	for _, link := range links {
		st, err := os.Lstat(link)
		m.must(err)
		if at := st.ModTime(); first.IsZero() || at.Before(first) {
			first = at
		}
		if at := st.ModTime(); at.After(last) {
			last = at
		}
	}
	return last.Sub(first)
}
