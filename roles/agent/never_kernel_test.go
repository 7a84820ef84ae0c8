package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/nvmf"
)

// kernelNevers are the rows of block.md 11 that the agent owns and that stand on what the
// kernel does. Each starts with a volume and leaves one.
var kernelNevers = map[string]func(m *machine){
	"N-5 access is granted again after a revoke":           neverAgain,
	"N-14 a revoke brings back another volume's device":    neverAnothers,
	"N-16 the backend of somebody's export is deleted":     neverExported,
	"N-44 an export goes because it is not listed":         neverUnlisted,
	"N-45 a device in use is enabled: opened":              neverHeld(opened),
	"N-45 a device in use is enabled: below device-mapper": neverHeld(mapped),
	"N-45 a device in use is enabled: mounted":             neverHeld(mounted),
	"N-47 an agent that stops, or starts, interrupts I/O":  neverInterrupted,
}

func TestNever_kernel(t *testing.T) {
	m := newMachine(t)
	for name, never := range kernelNevers {
		t.Run(name, func(t *testing.T) {
			m := m.in(t)
			m.mustStart()
			m.must(m.restore())
			m.must(m.create(1))
			never(m)
			m.must(m.unexport(90))
			m.must(m.remove(90))
			m.wantNothing()
			m.must(m.stop())
			m.wipe()
		})
	}
}

// neverAnothers has the volume's node lead to another volume while a host is denied, which
// has the kernel open the device anew for the hosts that stay (P-41). Nobody is served then, until
// the node is right and the volume exported again.
func neverAnothers(m *machine) {
	m.must(m.export(2, host1, host2))
	node, other := "/dev/"+testID.String(), testGroup+"/other"
	own, err := os.Readlink(node)
	m.must(err)
	m.must(m.run("lvcreate", "--yes", "--extents", "1", "--name", "other", testGroup))
	m.must(errors.Join(os.Remove(node), os.Symlink("/dev/"+other, node)))
	deny := func() error {
		return m.DenyInitiator(m.t.Context(), token(3), m.kind, transport.NVMeTCP, testID, host1)
	}
	enable := filepath.Join(nvmetDir, "subsystems", testNQN, "namespaces/1/enable")
	if err := deny(); err == nil || !strings.Contains(err.Error(), "is not this LV's device") {
		m.t.Errorf("DenyInitiator with a node that leads to another = %v, want a refusal", err)
	}
	if enabled, err := os.ReadFile(enable); err == nil && strings.TrimSpace(string(enabled)) != "0" {
		m.t.Errorf("the namespace is enabled on another volume's device: %s", enabled)
	}
	m.must(errors.Join(os.Remove(node), os.Symlink(own, node)))
	m.must(errors.Join(deny(), m.export(3, host2)))
	m.wantExport(host2)
	m.must(m.run("lvremove", "--yes", other))
}

// neverExported has somebody else export the volume's device, enabled and not, under
// another path of the same device, while its own path is there, or gone.
func neverExported(m *machine) {
	sub := filepath.Join(nvmetDir, "subsystems/nqn.2020-01.com.example:foreign")
	ns := filepath.Join(sub, "namespaces/7")
	target, err := filepath.EvalSymlinks("/dev/" + testID.String())
	m.must(errors.Join(err, os.MkdirAll(ns, 0o755), os.WriteFile(ns+"/device_path", []byte(target), 0)))
	for _, enable := range []string{"0", "1"} {
		m.must(os.WriteFile(ns+"/enable", []byte(enable), 0))
		m.must(os.Remove("/dev/" + testID.String()))
		if err := m.remove(2); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), filepath.Base(sub)) {
			m.t.Errorf("DeleteVolume with a foreign export, enable %s = %v, want ErrPrecondition that names it", enable, err)
		}
		m.wantVolumes(testID.Name)
	}
	m.must(errors.Join(os.Remove(ns), os.Remove(sub)))
}

// neverHeld has something on the storage node use the device before the first export, a
// resync and a restore; none enables it, and the volume is not deleted. Once the device is
// let go the next request serves it.
func neverHeld(use func(m *machine, device string) (release func())) func(*machine) {
	return func(m *machine) {
		release := use(m, "/dev/"+testID.String())
		refused := func(call string, err error) {
			m.t.Helper()
			if !errors.Is(err, storage.ErrBusy) || !strings.Contains(err.Error(), "is still held on the storage node (local attach in use)") {
				m.t.Errorf("%s of a held device = %v, want ErrBusy", call, err)
			}
			if got := m.glob("ports/*/subsystems/*"); len(got) > 0 {
				m.t.Errorf("%s of a held device linked %q", call, got)
			}
		}
		refused("ExportVolume", m.export(2, host1))
		resync, err := m.Reconcile(m.t.Context(), false, []agentrpc.Item{m.item(2, host1)})
		m.must(err)
		refused("resync", resync[0].Err)
		if err := m.remove(2); !errors.Is(err, storage.ErrBusy) && !errors.Is(err, storage.ErrPrecondition) {
			m.t.Errorf("DeleteVolume of a held device = %v, want a refusal", err)
		}
		m.must(m.stop())
		m.mustStart()
		refused("restore", m.restore(m.item(2, host1)))
		release()
		m.must(m.export(2, host1))
		m.wantExport(host1)
	}
}

func opened(m *machine, device string) func() {
	release, err := blockdev.Hold(device)
	m.must(err)
	return func() { m.must(release()) }
}

func mapped(m *machine, device string) func() {
	m.must(m.run("dmsetup", "create", "pillar-agent-test", "--table", fmt.Sprintf("0 8192 linear %s 0", device)))
	return func() { m.must(m.run("dmsetup", "remove", "--retry", "pillar-agent-test")) }
}

func mounted(m *machine, device string) func() {
	dir := m.t.(*testing.T).TempDir()
	m.must(m.run("mkfs.ext4", "-q", "-F", device))
	m.must(m.run("mount", device, dir))
	return func() { m.must(m.run("umount", dir)) }
}

// neverInterrupted has agents come and go while a host writes.
func neverInterrupted(m *machine) {
	whileWriting(m, func() {
		for range 20 {
			m.must(m.stop())
			m.mustStart()
			m.must(m.restore(m.item(2, host1)))
		}
	})
}

// neverUnlisted has the complete request of a new agent name nothing while a host writes.
func neverUnlisted(m *machine) {
	whileWriting(m, func() {
		m.must(m.stop())
		m.mustStart()
		m.must(m.restore())
		m.wantExport(host1)
	})
}

// neverAgain has a list that was made before a revoke arrive after it, as a resync, as the
// complete request and after a reboot.
func neverAgain(m *machine) {
	before := m.item(2, host1)
	m.must(m.export(2, host1))
	m.must(m.DenyInitiator(m.t.Context(), token(3), m.kind, transport.NVMeTCP, testID, host1))
	late := func(complete bool) {
		m.t.Helper()
		results, err := m.Reconcile(m.t.Context(), complete, []agentrpc.Item{before})
		m.must(err)
		if rejected := (*fencing.Rejection)(nil); !errors.As(results[0].Err, &rejected) {
			m.t.Errorf("a list of before the revoke, complete %v: %v, want a *fencing.Rejection", complete, results[0].Err)
		}
	}
	late(false)
	late(true)
	m.wantExport()
	m.reboot()
	m.mustStart()
	late(true)
	m.must(m.restore(m.item(3)))
	m.wantExport()
}

// whileWriting runs act while a host writes to the volume over NVMe, and wants it to notice
// nothing: not one write fails, and its device stays.
func whileWriting(m *machine, act func()) {
	hosttest.Need(m.t, "nvme_tcp")
	m.must(m.export(2, host1))
	h := nvmf.New("", nvmf.Config{HostNQN: host1, HostID: strings.TrimPrefix(host1, "nqn.2014-08.org.nvmexpress:uuid:")})
	ctx := m.t.Context()
	dev, err := h.Attach(ctx, nvmf.Target{NQN: testNQN, Portal: testPortal, CtrlLossTmo: new(5), ReconnectDelay: new(1)})
	m.must(err)
	f, err := os.OpenFile(dev.Path, os.O_RDWR|os.O_SYNC, 0)
	m.must(err)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- rewrite(f, stop) }()
	act()
	close(stop)
	if err := <-done; err != nil {
		m.t.Errorf("the writer: %v", err)
	}
	now, err := h.Device(ctx, testNQN)
	dev.Created = false
	if err != nil || now != dev {
		m.t.Errorf("device is %+v, %v, want %+v", now, err, dev)
	}
	m.must(errors.Join(f.Close(), h.Detach(ctx, testNQN, transport.Portal{})))
}

// rewrite writes a block and reads it back until stop is closed.
func rewrite(f *os.File, stop <-chan struct{}) error {
	block, got := make([]byte, 4096), make([]byte, 4096)
	for n := byte(0); ; n++ {
		select {
		case <-stop:
			return nil
		default:
		}
		for i := range block {
			block[i] = n
		}
		if _, err := f.WriteAt(block, 0); err != nil {
			return err
		}
		if _, err := f.ReadAt(got, 0); err != nil {
			return err
		}
		if !bytes.Equal(got, block) {
			return fmt.Errorf("read back %d after writing %d", got[0], n)
		}
	}
}
