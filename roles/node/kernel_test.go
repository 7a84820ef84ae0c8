package node

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/roles/node/staging"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/mount"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/nvmet"
	"github.com/pillar-csi/pillar/transport/nvmf"
)

const (
	kernelHostID  = "44444444-4444-4444-8444-444444444444"
	kernelHostNQN = "nqn.2014-08.org.nvmexpress:uuid:" + kernelHostID
	agentVolume   = "vg0/pvc-1" // volumeID's
)

// worker is this kernel as storage node and worker in one, with a target on loopback. Its
// directories have fixed names: a child that is to be killed finds them.
type worker struct {
	t      *testing.T
	ctx    context.Context
	target *nvmet.Target
	host   *nvmf.Host
	backer string // the device behind the export
}

var kernelDir = filepath.Join(os.TempDir(), "pillar-node-test")

// newWorker exports backer. In a child all of it is there already.
func newWorker(t *testing.T, backer string) *worker {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Minute)
	t.Cleanup(cancel)
	w := &worker{t: t, ctx: ctx, backer: backer}
	w.target = nvmet.New(configfs.New(""), nvmet.Config{IdentityDir: filepath.Join(kernelDir, "identity")})
	w.host = nvmf.New("", nvmf.Config{HostNQN: kernelHostNQN, HostID: kernelHostID})
	if hosttest.InChild(t) {
		return w
	}
	w.must(configfs.Mount(""))
	w.must(w.host.Available())
	w.must(os.MkdirAll(w.dir("kubelet"), 0o755))
	w.must(unix.Mount("kubelet", w.dir("kubelet"), "tmpfs", 0, ""))
	w.must(unix.Mount("", w.dir("kubelet"), "", unix.MS_SHARED, ""))
	w.export()
	t.Cleanup(w.tearDown)
	return w
}

func (w *worker) dir(name string) string { return filepath.Join(kernelDir, name) }

func (w *worker) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *worker) export() {
	w.t.Helper()
	_, err := w.target.Export(w.ctx, transport.Export{
		Kind: transport.NVMeTCP, Volume: agentVolume, DevicePath: w.backer,
		Portal: transport.Portal{Address: "127.0.0.1", Port: 4422}, ACL: true, Initiators: []string{kernelHostNQN},
	}, func(string) (func() error, error) { return func() error { return nil }, nil })
	w.must(err)
}

// tearDown removes what a failed test left, too.
func (w *worker) tearDown() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), 30*time.Second)
	defer cancel()
	table, err := mount.Read("")
	w.must(err)
	for i := len(table) - 1; i >= 0; i-- {
		if strings.HasPrefix(table[i].Path, w.dir("kubelet")) {
			w.must(mount.Unmount(table[i].Path))
		}
	}
	w.must(errors.Join(w.host.Detach(ctx, nqn, transport.Portal{}), w.target.Unexport(ctx, agentVolume, w.backer), os.RemoveAll(kernelDir)))
}

// server is the node plugin after a start.
func (w *worker) server() *Server {
	w.t.Helper()
	records, err := staging.Open(w.dir("state"))
	w.must(err)
	return newServer("", "worker-1", records, attach.New(w.host, false))
}

func (w *worker) stagingPath() string        { return w.dir("kubelet/staging") }
func (w *worker) podPath(name string) string { return w.dir("kubelet/" + name) }

func (w *worker) stage(c *csi.VolumeCapability, extra ...string) error {
	volume := volumeContext(append([]string{"address", "127.0.0.1", "port", "4422"}, extra...)...)
	_, err := w.server().NodeStageVolume(w.ctx, &csi.NodeStageVolumeRequest{
		VolumeId: volumeID, StagingTargetPath: w.stagingPath(), VolumeCapability: c, VolumeContext: volume,
	})
	return err
}

func (w *worker) publish(c *csi.VolumeCapability, target string, readOnly bool) error {
	_, err := w.server().NodePublishVolume(w.ctx, &csi.NodePublishVolumeRequest{
		VolumeId: volumeID, StagingTargetPath: w.stagingPath(), TargetPath: w.podPath(target), VolumeCapability: c, Readonly: readOnly,
	})
	return err
}

func (w *worker) unpublish(target string) error {
	_, err := w.server().NodeUnpublishVolume(w.ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: volumeID, TargetPath: w.podPath(target)})
	return err
}

func (w *worker) unstage() error {
	_, err := w.server().NodeUnstageVolume(w.ctx, &csi.NodeUnstageVolumeRequest{VolumeId: volumeID, StagingTargetPath: w.stagingPath()})
	return err
}

// nothingLeft fails the test unless mounts, controllers and records are all gone.
func (w *worker) nothingLeft() {
	w.t.Helper()
	table, err := mount.Read("")
	w.must(err)
	for _, e := range table {
		if strings.HasPrefix(e.Path, w.dir("kubelet")+"/") || strings.HasPrefix(e.Source, "/dev/nvme") {
			w.t.Errorf("still mounted: %+v", e)
		}
	}
	if dev, err := w.host.Device(w.ctx, nqn); !errors.Is(err, transport.ErrNotFound) {
		w.t.Errorf("still connected: %+v, %v", dev, err)
	}
	for _, pattern := range []string{"/sys/class/nvme/*", w.dir("state/*"), w.dir("kubelet/pod*")} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			w.t.Errorf("left: %s", left)
		}
	}
}

// sum is the checksum of the first MiB of the device behind the export.
func (w *worker) sum() [32]byte {
	w.t.Helper()
	f, err := os.Open(w.backer)
	w.must(err)
	defer f.Close()
	must(&machine{t: w.t}, unix.Fadvise(int(f.Fd()), 0, mib, unix.FADV_DONTNEED))
	data := make([]byte, mib)
	_, err = io.ReadFull(f, data)
	w.must(err)
	return sha256.Sum256(data)
}

// overwrite writes to the device behind the export.
func (w *worker) overwrite(at int64, data []byte) {
	w.t.Helper()
	f, err := os.OpenFile(w.backer, os.O_WRONLY|os.O_SYNC, 0)
	w.must(err)
	_, err = f.WriteAt(data, at)
	w.must(errors.Join(err, f.Close()))
}

func need(t *testing.T) { hosttest.Need(t, "nvmet", "nvmet_tcp", "nvme_tcp", "bin:mkfs.ext4") }

func TestKernel_Filesystem(t *testing.T) {
	need(t)
	hosttest.Need(t, "ext4", "xfs", "bin:mkfs.xfs")
	for _, fstype := range []string{"ext4", "xfs"} {
		t.Run(fstype, func(t *testing.T) {
			hosttest.NoLeaks(t)
			w := newWorker(t, hosttest.Disk(t, 0))
			for round := range 2 {
				w.stageTwice(fstype)
				if round == 0 {
					w.must(os.WriteFile(w.podPath("pod/data"), []byte("from the first round"), 0o600))
				}
				if got, err := os.ReadFile(w.podPath("pod/data")); err != nil || string(got) != "from the first round" {
					t.Errorf("round %d: the pod reads %q, %v", round, got, err)
				}
				w.checkRefusals()
				w.checkStats()
				for range 2 {
					w.must(errors.Join(w.unpublish("pod"), w.unpublish("pod2")))
				}
				w.must(errors.Join(w.unstage(), w.unstage()))
				w.nothingLeft()
			}
		})
	}
}

// stageTwice stages, publishes for one pod and read-only for another, each call twice.
func (w *worker) stageTwice(fstype string) {
	w.t.Helper()
	for range 2 {
		w.must(w.stage(writer, attach.Prefix+"fs-type", fstype))
		w.must(w.publish(writer, "pod", false))
		w.must(w.publish(writer, "pod2", true))
	}
}

func (w *worker) checkRefusals() {
	w.t.Helper()
	if err := os.WriteFile(w.podPath("pod2/x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		w.t.Errorf("write through the read-only target = %v, want EROFS", err)
	}
	if err := w.publish(writer, "pod2", false); csiserve.CodeOf(err) != csiserve.AlreadyExists {
		w.t.Errorf("publish where a read-only bind is = %v, want AlreadyExists", err)
	}
	if err := w.unstage(); csiserve.CodeOf(err) != csiserve.FailedPrecondition {
		w.t.Errorf("unstage while published = %v, want FailedPrecondition", err)
	}
}

func (w *worker) checkStats() {
	w.t.Helper()
	resp, err := w.server().NodeGetVolumeStats(w.ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: volumeID, VolumePath: w.podPath("pod")})
	w.must(err)
	for _, u := range resp.Usage {
		if u.Total <= 0 || u.Used <= 0 || u.Available <= 0 || u.Used+u.Available > u.Total {
			w.t.Errorf("usage = %v", u)
		}
	}
}

func TestKernel_Block(t *testing.T) {
	need(t)
	w := newWorker(t, hosttest.Disk(t, 0))
	block := blockCapability()
	w.must(w.stage(block))
	w.must(w.stage(block))
	w.must(w.publish(block, "pod", false))
	w.must(w.publish(block, "pod", false))
	f, err := os.OpenFile(w.podPath("pod"), os.O_WRONLY, 0)
	w.must(err)
	_, err = f.WriteAt([]byte("raw"), 4096) // cached: unstage must bring it to the target
	w.must(errors.Join(err, f.Close()))
	if err := w.stage(writer); csiserve.CodeOf(err) != csiserve.AlreadyExists {
		t.Errorf("stage as a filesystem = %v, want AlreadyExists", err)
	}
	if err := w.unstage(); csiserve.CodeOf(err) != csiserve.FailedPrecondition {
		t.Errorf("unstage while published = %v, want FailedPrecondition", err)
	}
	w.must(w.unpublish("pod"))
	w.must(w.unstage())
	w.nothingLeft()
	backer, err := os.Open(w.backer)
	w.must(err)
	defer backer.Close()
	must(&machine{t: t}, unix.Fadvise(int(backer.Fd()), 0, mib, unix.FADV_DONTNEED))
	got := make([]byte, 3)
	if _, err := backer.ReadAt(got, 4096); err != nil || string(got) != "raw" {
		t.Errorf("the target holds %q, %v, want what the pod wrote", got, err)
	}
}

func TestKernel_NeverFormatted(t *testing.T) {
	need(t)
	w := newWorker(t, hosttest.Disk(t, 0))
	for name, content := range map[string]struct {
		at   int64
		text string
	}{
		"xfs": {0, "XFSB"}, "an LVM member": {512, "LABELONE"}, "gpt": {512, "EFI PART"}, "swap": {4086, "SWAPSPACE2"},
	} {
		t.Run(name, func(t *testing.T) {
			w.overwrite(0, make([]byte, mib))
			w.overwrite(content.at, []byte(content.text))
			before := w.sum()
			if err := w.stage(writer); csiserve.CodeOf(err) != csiserve.FailedPrecondition {
				t.Errorf("stage = %v, want FailedPrecondition", err)
			}
			if w.sum() != before {
				t.Error("the device was written to")
			}
			w.nothingLeft()
		})
	}
}

func TestKernel_RecordCorrupt(t *testing.T) {
	need(t)
	w := newWorker(t, hosttest.Disk(t, 0))
	w.must(w.stage(writer))
	w.must(w.publish(writer, "pod", false))
	records, err := filepath.Glob(w.dir("state/*.json"))
	if err != nil || len(records) != 1 {
		t.Fatalf("records = %v, %v", records, err)
	}
	good, err := os.ReadFile(records[0])
	w.must(err)
	w.must(os.WriteFile(records[0], good[:len(good)/2], 0o600))
	for name, call := range map[string]func() error{
		"stage":     func() error { return w.stage(writer) },
		"publish":   func() error { return w.publish(writer, "pod", false) },
		"unpublish": func() error { return w.unpublish("pod") },
		"unstage":   w.unstage,
	} {
		if err := call(); csiserve.CodeOf(err) != csiserve.Internal {
			t.Errorf("%s with a corrupt record = %v, want Internal", name, err)
		}
	}
	w.must(os.WriteFile(w.podPath("pod/still"), nil, 0o600))
	w.must(os.WriteFile(records[0], good, 0o600))
	w.must(errors.Join(w.unpublish("pod"), w.unstage()))
	w.nothingLeft()
}

// TestKernel_HeldElsewhere keeps the filesystem alive in another mount namespace: the
// unmount succeeds here, and the disconnect must not follow (block.md B-366).
func TestKernel_HeldElsewhere(t *testing.T) {
	need(t)
	hosttest.Need(t, "bin:sleep")
	w := newWorker(t, hosttest.Disk(t, 0))
	w.must(w.stage(writer))
	holder := exec.Command("sleep", "600")
	holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS} // Go makes all of it private
	w.must(holder.Start())
	time.Sleep(time.Second) // until the child has its namespace
	if err := w.unstage(); csiserve.CodeOf(err) != csiserve.Internal || !strings.Contains(err.Error(), "still holds it") {
		t.Errorf("unstage while held elsewhere = %v, want Internal", err)
	}
	if _, err := w.host.Device(w.ctx, nqn); err != nil {
		t.Errorf("the device went away under a living filesystem: %v", err)
	}
	w.must(holder.Process.Kill())
	_ = holder.Wait() // killed
	w.must(w.unstage())
	w.nothingLeft()
}

// TestKernel_TargetGone loses the device under a staged and published volume: no call may
// say that all is well, and the way back must still work.
func TestKernel_TargetGone(t *testing.T) {
	need(t)
	w := newWorker(t, hosttest.Disk(t, 0))
	w.must(w.stage(writer, attach.Prefix+"nvmeof-ctrl-loss-tmo", "1", attach.Prefix+"nvmeof-reconnect-delay", "1"))
	w.must(w.publish(writer, "pod", false))
	w.must(w.target.Unexport(w.ctx, agentVolume, w.backer))
	for gone := false; !gone; time.Sleep(100 * time.Millisecond) {
		w.must(w.ctx.Err())
		_, err := w.host.Device(w.ctx, nqn)
		gone = errors.Is(err, transport.ErrNotFound)
	}
	for name, call := range map[string]func() error{
		"stage":   func() error { return w.stage(writer) },
		"publish": func() error { return w.publish(writer, "pod", false) },
	} {
		if err := call(); csiserve.CodeOf(err) != csiserve.Internal {
			t.Errorf("%s on a dead device = %v, want Internal", name, err)
		}
	}
	w.must(errors.Join(w.unpublish("pod"), w.unstage()))
	w.nothingLeft()
}
