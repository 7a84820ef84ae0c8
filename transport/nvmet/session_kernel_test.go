package nvmet

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
	"github.com/pillar-csi/pillar/transport/nvmf"
	"golang.org/x/sys/unix"
)

// session is a target and two hosts in one kernel, over the loopback device.
type session struct {
	t            *testing.T
	ctx          context.Context
	k            *configfstest.Kernel
	target       *Target
	first, other *nvmf.Host
	disk         string
}

// newSession loads the NVMe host with or without native multipath. Without it two hosts of
// one kernel have devices of their own, as on two machines; with it they would share one.
func newSession(t *testing.T, multipath string) *session {
	hosttest.Need(t, "nvmet", "nvmet_tcp", "nvme_tcp", "bin:modprobe")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	s := &session{t: t, ctx: ctx, disk: device}
	s.k, s.target = onKernel(t)
	s.reload(multipath)
	s.first = nvmf.New("", nvmf.Config{HostNQN: host1, HostID: strings.TrimPrefix(host1, "nqn.2014-08.org.nvmexpress:uuid:")})
	s.other = nvmf.New("", nvmf.Config{HostNQN: host2, HostID: strings.TrimPrefix(host2, "nqn.2014-08.org.nvmexpress:uuid:")})
	t.Cleanup(func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		first := make(chan error) // with native multipath each waits for the device both have
		go func() { first <- s.first.Detach(end, nqn, transport.Portal{}) }()
		must(t, errors.Join(s.other.Detach(end, nqn, transport.Portal{}), <-first, s.target.Unexport(end, volume, s.disk)))
	})
	return s
}

// reload loads the host's module anew, whose parameter is fixed after that. The target's
// uses it (passthru), and goes only without its last object.
func (s *session) reload(multipath string) {
	s.t.Helper()
	must(s.t, s.k.Clear())
	remove := []string{"-r", "nvme_tcp", "nvme_fabrics", "nvmet_tcp", "nvmet", "nvme_core"}
	for _, argv := range [][]string{remove, {"nvme_core", "multipath=" + multipath}, {"nvme_tcp"}, {"nvmet_tcp"}} {
		_, err := (host.Exec{}).Run(s.ctx, "modprobe", argv...)
		// A module is in use for a moment after its last session went.
		for end := time.Now().Add(20 * time.Second); err != nil && strings.Contains(err.Error(), "is in use") && time.Now().Before(end); {
			time.Sleep(100 * time.Millisecond)
			_, err = (host.Exec{}).Run(s.ctx, "modprobe", argv...)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	got, err := os.ReadFile("/sys/module/nvme_core/parameters/multipath")
	if err != nil || string(got) != multipath+"\n" {
		s.t.Fatalf("native multipath is %q, %v, want %s", got, err, multipath)
	}
}

func (s *session) export(hosts ...string) {
	s.t.Helper()
	e := transport.Export{Kind: transport.NVMeTCP, Volume: volume, DevicePath: s.disk, Portal: portal, ACL: true, Initiators: hosts}
	if _, err := s.target.Export(s.ctx, e, hold); err != nil {
		s.t.Fatal(err)
	}
}

// hold is the agent's claim.
func hold(device string) (func() error, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_EXCL|unix.O_CLOEXEC, 0)
	return func() error { return unix.Close(fd) }, err
}

func (s *session) attach(h *nvmf.Host) (nvmf.Device, error) {
	return h.Attach(s.ctx, nvmf.Target{NQN: nqn, Portal: portal, CtrlLossTmo: new(60), ReconnectDelay: new(1)})
}

func (s *session) mustAttach(h *nvmf.Host) nvmf.Device {
	s.t.Helper()
	dev, err := s.attach(h)
	if err != nil {
		s.t.Fatal(err)
	}
	return dev
}

const blockSize = 4096

// pattern is one aligned block full of b, for O_DIRECT.
func pattern(b byte) []byte {
	mem, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	copy(mem, bytes.Repeat([]byte{b}, blockSize))
	return mem
}

func (s *session) open(path string) *os.File {
	s.t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_DIRECT, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { f.Close() })
	return f
}

// block reads the n-th block past every cache.
func (s *session) block(path string, n int) byte {
	s.t.Helper()
	f, buf := s.open(path), pattern(0)
	defer f.Close()
	if _, err := f.ReadAt(buf, int64(n)*blockSize); err != nil {
		s.t.Fatal(err)
	}
	return buf[0]
}

func TestKernel_session(t *testing.T) {
	for _, multipath := range []string{"Y", "N"} {
		t.Run("native multipath "+multipath, func(t *testing.T) {
			s := newSession(t, multipath)
			s.export(host1)
			dev := s.mustAttach(s.first)
			if !dev.Created || dev.UUID != derive(nqn).UUID {
				t.Errorf("Attach = %+v, want a new controller and uuid %s", dev, derive(nqn).UUID)
			}
			if again := s.mustAttach(s.first); again.Created || again.Path != dev.Path {
				t.Errorf("second Attach = %+v, want the same device reused", again)
			}
			if _, err := s.open(dev.Path).WriteAt(pattern('x'), 0); err != nil {
				t.Fatal(err)
			}
			if got := s.block(s.disk, 0); got != 'x' {
				t.Errorf("the disk holds %q, want what was written over NVMe", got)
			}
			must(t, s.first.Detach(s.ctx, nqn, transport.Portal{}))
			if _, err := s.first.Device(s.ctx, nqn); !errors.Is(err, transport.ErrNotFound) {
				t.Errorf("Device after Detach = %v, want ErrNotFound", err)
			}
			if _, err := os.Stat(dev.Path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s after Detach: %v, want it gone", dev.Path, err)
			}
			must(t, s.first.Detach(s.ctx, nqn, transport.Portal{}))
		})
	}
}

func TestKernel_unlistedHost(t *testing.T) {
	s := newSession(t, "Y")
	s.export(host1)
	if _, err := s.attach(s.other); !errors.Is(err, unix.EIO) {
		t.Errorf("Attach of an unlisted host = %v, want EIO", err)
	}
	must(t, s.target.Allow(s.ctx, volume, s.disk, host2))
	s.mustAttach(s.other)
}

// A target built anew under a connected host is the same to it: it reconnects, and I/O
// that waited goes through.
func TestKernel_rebuiltTarget(t *testing.T) {
	s := newSession(t, "Y")
	s.export(host1)
	dev := s.mustAttach(s.first)
	f := s.open(dev.Path)
	must(t, s.target.Unexport(s.ctx, volume, s.disk))
	s.export(host1)
	if _, err := f.WriteAt(pattern('y'), 0); err != nil {
		t.Errorf("write over the rebuilt target: %v", err)
	}
	now, err := s.first.Device(s.ctx, nqn)
	dev.Created = false
	if err != nil || now != dev {
		t.Errorf("device after the rebuild is %+v, %v, want %+v", now, err, dev)
	}
}

// write writes the n-th block without a pause until that fails; count is of those done.
func write(f *os.File, n int, count *atomic.Int64) error {
	for b := byte(0); ; b++ {
		if _, err := f.WriteAt(pattern(b), int64(n)*blockSize); err != nil {
			return err
		}
		count.Add(1)
	}
}

// read reads blocks without a pause until one fails or stop is closed.
func read(f *os.File, stop <-chan struct{}) error {
	buf := pattern(0)
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		if _, err := f.ReadAt(buf, 0); err != nil {
			return err
		}
	}
}

// writers are how many writes of a host are in flight at a time.
const writers = 4

// D-29: a host that is denied while it writes can write no more once Deny has returned, and
// never again; another host's reads go on without an error, on the same device.
func TestKernel_deniedWriter(t *testing.T) {
	s := newSession(t, "N")
	s.export(host1, host2)
	writer, reader := s.mustAttach(s.first), s.mustAttach(s.other)
	var count atomic.Int64
	done := make(chan error, writers)
	f, rf := s.open(writer.Path), s.open(reader.Path)
	for n := range writers {
		go func() { done <- write(f, n, &count) }()
	}
	stop, reads := make(chan struct{}), make(chan error, 1)
	go func() { reads <- read(rf, stop) }()
	for count.Load() < 100 {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	must(t, s.target.Deny(s.ctx, volume, s.disk, host1, hold))
	t.Logf("denied within %v, after %d writes", time.Since(start), count.Load())
	s.wantSilence()
	close(stop)
	if err := <-reads; err != nil || s.block(reader.Path, 0) != '!' {
		t.Errorf("the other host reads %q, %v", s.block(reader.Path, 0), err)
	}
	now, err := s.other.Device(s.ctx, nqn)
	reader.Created = false
	if err != nil || now != reader {
		t.Errorf("the other host's device is %+v, %v, want %+v", now, err, reader)
	}
	must(t, s.target.Deny(s.ctx, volume, s.disk, host1, hold))
	must(t, s.first.Detach(s.ctx, nqn, transport.Portal{}))
	for range writers {
		if err := <-done; err == nil {
			t.Error("the denied writer ended without an error")
		}
	}
}

// wantSilence marks the blocks of the denied writers and wants the marks to stay.
func (s *session) wantSilence() {
	s.t.Helper()
	disk := s.open(s.disk)
	for n := range writers {
		if _, err := disk.WriteAt(pattern('!'), int64(n)*blockSize); err != nil {
			s.t.Fatal(err)
		}
	}
	for i := range 30 * writers {
		if got := s.block(s.disk, i%writers); got != '!' {
			s.t.Fatalf("block %d reads %q: the denied host wrote", i%writers, got)
		}
		time.Sleep(25 * time.Millisecond)
	}
}

// D-29, N-1: a revoke that is stopped before any of its effects, and repeated, has ended the
// sessions of a host that is connected.
func TestKernel_deniedCrash(t *testing.T) {
	s := newSession(t, "N")
	for n, ended := 0, false; !ended; n++ {
		s.export(host1, host2)
		s.mustAttach(s.first)
		crashing(s.k, n)
		err := s.target.Deny(s.ctx, volume, s.disk, host1, hold)
		s.k.OnEffect = nil
		if ended = err == nil; !ended && !errors.Is(err, errCrash) {
			t.Fatalf("before effect %d: %v", n, err)
		}
		must(t, s.target.Deny(s.ctx, volume, s.disk, host1, hold))
		s.export(host2) // the controller's next request
		if live := s.live(host1); len(live) > 0 {
			t.Errorf("stopped before effect %d: %q of the denied host are live", n, live)
		}
		must(t, s.first.Detach(s.ctx, nqn, transport.Portal{}))
		if _, err := s.attach(s.first); !errors.Is(err, unix.EIO) {
			t.Errorf("stopped before effect %d: Attach of the denied host = %v, want EIO", n, err)
		}
	}
}

// live answers the controllers over which a host is connected.
func (s *session) live(hostNQN string) (paths []string) {
	s.t.Helper()
	all, err := filepath.Glob("/sys/class/nvme/nvme*")
	must(s.t, err)
	for _, path := range all {
		host, _ := os.ReadFile(path + "/hostnqn") // gone meanwhile: not live
		state, _ := os.ReadFile(path + "/state")
		if strings.TrimSpace(string(host)) == hostNQN && strings.TrimSpace(string(state)) == "live" {
			paths = append(paths, path)
		}
	}
	return paths
}
