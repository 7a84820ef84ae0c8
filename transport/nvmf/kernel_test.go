package nvmf_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/nvmet"
	"github.com/pillar-csi/pillar/transport/nvmf"
	"golang.org/x/sys/unix"
)

const (
	volume  = "vg0/nvmf"
	hostID  = "33333333-3333-4333-8333-333333333333"
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:" + hostID
)

var loopback = transport.Portal{Address: "127.0.0.1", Port: 4421}

// loop is this kernel's target and host, connected over the loopback device.
type loop struct {
	t      *testing.T
	ctx    context.Context
	target *nvmet.Target
	host   *nvmf.Host
	disk   string
	nqn    string
}

func newLoop(t *testing.T) *loop {
	hosttest.Need(t, "nvmet", "nvmet_tcp", "nvme_tcp")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	l := &loop{t: t, ctx: ctx, disk: hosttest.Disk(t, 1)}
	l.must(configfs.Mount(""))
	l.target = nvmet.New(configfs.New(""), nvmet.Config{IdentityDir: t.TempDir()})
	l.host = nvmf.New("", nvmf.Config{HostNQN: hostNQN, HostID: hostID})
	l.must(l.host.Available())
	var err error
	if l.nqn, err = nvmet.NQN(volume); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		l.must(errors.Join(l.host.Detach(end, l.nqn, loopback), l.target.Unexport(end, volume, l.disk)))
	})
	return l
}

func (l *loop) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *loop) export() {
	l.t.Helper()
	_, err := l.target.Export(l.ctx, transport.Export{
		Kind: transport.NVMeTCP, Volume: volume, DevicePath: l.disk, Portal: loopback, ACL: true, Initiators: []string{hostNQN},
	}, func(string) (func() error, error) { return func() error { return nil }, nil })
	l.must(err)
}

func (l *loop) attach(change func(*nvmf.Target)) (nvmf.Device, error) {
	t := nvmf.Target{NQN: l.nqn, Portal: loopback, CtrlLossTmo: new(60), ReconnectDelay: new(1)}
	if change != nil {
		change(&t)
	}
	return l.host.Attach(l.ctx, t)
}

func (l *loop) connected() nvmf.Device {
	l.t.Helper()
	l.export()
	dev, err := l.attach(nil)
	l.must(err)
	return dev
}

func TestKernel_refusals(t *testing.T) {
	l := newLoop(t)
	if _, err := l.attach(nil); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("Attach with nobody listening = %v, want ECONNREFUSED", err)
	}
	l.export()
	if _, err := l.attach(func(t *nvmf.Target) { t.ReconnectDelay = new(0) }); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Attach with reconnect_delay 0 = %v, want EINVAL", err)
	}
	if _, err := l.attach(func(t *nvmf.Target) { t.NQN += "-other" }); !errors.Is(err, unix.EIO) {
		t.Errorf("Attach to an unknown subsystem = %v, want EIO", err)
	}
	l.connected()
	if _, err := l.attach(func(t *nvmf.Target) { t.Portal.Port++ }); !errors.Is(err, transport.ErrPrecondition) {
		t.Errorf("Attach at another portal = %v, want ErrPrecondition", err)
	}
}

func TestKernel_options(t *testing.T) {
	l := newLoop(t)
	l.export()
	dev, err := l.attach(func(t *nvmf.Target) {
		t.QueueSize, t.CtrlLossTmo, t.ReconnectDelay, t.HdrDigest, t.DataDigest = new(32), new(40), new(2), true, true
	})
	l.must(err)
	f, err := os.OpenFile(dev.Path, os.O_WRONLY|os.O_SYNC, 0)
	l.must(err)
	defer f.Close()
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Errorf("write with digests: %v", err)
	}
	for attr, want := range map[string]string{"sqsize": "31", "ctrl_loss_tmo": "40", "reconnect_delay": "2"} {
		if got := l.attribute(attr); got != want {
			t.Errorf("%s = %s, want %s", attr, got, want)
		}
	}
}

// attribute reads one of the only controller connected to l.nqn.
func (l *loop) attribute(attr string) string {
	l.t.Helper()
	for _, dir := range l.glob("/sys/class/nvme/nvme*") {
		nqn, err := os.ReadFile(filepath.Join(dir, "subsysnqn"))
		if err == nil && strings.TrimSpace(string(nqn)) == l.nqn {
			value, err := os.ReadFile(filepath.Join(dir, attr))
			l.must(err)
			return strings.TrimSpace(string(value))
		}
	}
	l.t.Fatalf("no controller of %s", l.nqn)
	return ""
}

func (l *loop) glob(pattern string) []string {
	l.t.Helper()
	names, err := filepath.Glob(pattern)
	l.must(err)
	return names
}

// A controller that lost its target is waited for, not doubled.
func TestKernel_reconnecting(t *testing.T) {
	l := newLoop(t)
	dev := l.connected()
	l.must(l.target.Unexport(l.ctx, volume, l.disk))
	for l.attribute("state") == "live" {
		time.Sleep(10 * time.Millisecond)
	}
	back := make(chan struct{})
	time.AfterFunc(300*time.Millisecond, func() { l.export(); close(back) })
	again, err := l.attach(nil)
	<-back
	dev.Created = false
	if err != nil || again != dev {
		t.Errorf("Attach while reconnecting = %+v, %v, want %+v", again, err, dev)
	}
}

func TestKernel_node(t *testing.T) {
	l := newLoop(t)
	dev := l.connected()
	l.must(os.Remove(dev.Path))
	if again, err := l.attach(nil); err != nil || again.Path != dev.Path {
		t.Errorf("Attach without a node = %+v, %v, want it made", again, err)
	}
	l.must(os.Remove(dev.Path))
	l.must(unix.Mknod(dev.Path, unix.S_IFBLK|0o600, int(unix.Mkdev(1, 0))))
	if _, err := l.attach(nil); err == nil || !strings.Contains(err.Error(), "1:0") {
		t.Errorf("Attach over another device's node = %v, want its numbers", err)
	}
	l.must(os.Remove(dev.Path))
	l.must(unix.Mknod(dev.Path, unix.S_IFBLK|0o600, int(unix.Mkdev(dev.Major, dev.Minor))))
}

func TestKernel_limit(t *testing.T) {
	l := newLoop(t)
	dev := l.connected()
	queues := append(l.glob("/sys/class/nvme/nvme*/nvme*c*n*/queue/max_sectors_kb"),
		filepath.Join("/sys/block", filepath.Base(dev.Path), "queue/max_sectors_kb"))
	l.must(l.host.Limit(l.ctx, l.nqn, 0))
	for range 2 {
		l.must(l.host.Limit(l.ctx, l.nqn, 64<<10))
		for _, q := range queues {
			if got, err := os.ReadFile(q); err != nil || string(got) != "64\n" {
				t.Errorf("%s = %q, %v, want 64", q, got, err)
			}
		}
	}
	l.must(l.host.Detach(l.ctx, l.nqn, loopback))
	if err := l.host.Limit(l.ctx, l.nqn, 64<<10); !errors.Is(err, transport.ErrNotFound) {
		t.Errorf("Limit of nothing = %v, want ErrNotFound", err)
	}
}
