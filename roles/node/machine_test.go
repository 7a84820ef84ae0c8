package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/roles/node/staging"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/filesystem"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/mount"
)

const (
	volumeID = "storage-1/nvmeof-tcp/lvm-lv/vg0/pvc-1"
	nqn      = "nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1"
	mib      = 1 << 20
)

// machine is a worker with one volume in reach. It keeps the rules of the kernel that the
// node plugin leans on, and writes down every effect in order.
type machine struct {
	t     *testing.T
	dir   string // kubelet's
	disk  map[int64]string
	bad   int64 // a byte of the disk that cannot be read, if not 0
	size  int64 // of the disk, bytes
	minor uint32

	connected bool
	half      bool // a controller is there, its device is not
	busy      bool // somebody holds the device elsewhere
	dead      bool // filesystems do not answer
	table     mount.Table
	trace     []string
	fail      map[string]error // effect -> how it fails
}

var errFake = errors.New("input/output error")

func newMachine(t *testing.T) *machine {
	t.Helper()
	return &machine{
		t: t, dir: t.TempDir(), disk: map[int64]string{}, size: 16 * mib, minor: 1, fail: map[string]error{},
		table: mount.Table{
			{ID: 1, Path: "/", Root: "/", Major: 8, Minor: 1, Type: "ext4", Shared: true},
			{ID: 2, Path: "/dev", Root: "/", Minor: 5, Type: "devtmpfs", Shared: true},
		},
	}
}

// server answers a Node service on the machine, as after a start of the process.
func (m *machine) server() *Server {
	m.t.Helper()
	records, err := staging.Open(filepath.Join(m.dir, "state"))
	must(m, err)
	const profile = "usr/share/xfsprogs/mkfs/lts_5.15.conf"
	must(m, os.MkdirAll(filepath.Join(m.dir, filepath.Dir(profile)), 0o755))
	must(m, os.WriteFile(filepath.Join(m.dir, profile), []byte("[metadata]\ncrc=1\n"), 0o600))
	return &Server{
		cfg:     Config{Name: "worker-1", Root: host.Root(m.dir), PageSize: 4096},
		records: records, attach: m, mounts: m, format: filesystem.Tools{Run: m, Root: host.Root(m.dir)}, probe: m,
	}
}

func (m *machine) staging() string           { return filepath.Join(m.dir, "staging") }
func (m *machine) target(name string) string { return filepath.Join(m.dir, name) }
func (m *machine) device() attach.Device {
	return attach.Device{Path: "/dev/nvme0n1", Major: 259, Minor: m.minor}
}
func (m *machine) Offers(attach.Source) error { return nil }

// effect writes an effect down and fails it if the test says so.
func (m *machine) effect(what string) error {
	m.trace = append(m.trace, what)
	return m.fail[what]
}

func (m *machine) Attach(context.Context, attach.Source) (attach.Device, error) {
	dev := m.device()
	if !m.connected {
		if err := m.effect("connect"); err != nil {
			return attach.Device{Created: m.half}, err
		}
		m.connected, dev.Created = true, true
	}
	return dev, nil
}

func (m *machine) Limit(context.Context, attach.Source) error { return m.fail["limit"] }

func (m *machine) Resize(_ context.Context, _ attach.Source, atLeast int64) (int64, error) {
	if m.size < atLeast {
		if err := m.effect("rescan"); err != nil {
			return 0, err
		}
		m.size = atLeast
	}
	return m.size, nil
}

func (m *machine) Find(context.Context, attach.Source) (attach.Device, bool, error) {
	return m.device(), m.connected, m.fail["find"]
}

func (m *machine) Detach(context.Context, attach.Source) error {
	if !m.connected && !m.half {
		return nil
	}
	if err := m.effect("disconnect"); err != nil {
		return err
	}
	for _, e := range m.table {
		if e.Major == 259 {
			m.t.Errorf("disconnect under the mount at %s", e.Path)
		}
	}
	m.connected, m.half = false, false
	m.minor++ // the next device gets other numbers
	return nil
}

func (m *machine) Table() (mount.Table, error) {
	return append(mount.Table{}, m.table...), m.fail["table"]
}

func (m *machine) Mount(source, target, fstype string, options []string) error {
	if err := m.effect(fmt.Sprintf("mount %s %q", fstype, options)); err != nil {
		return err
	}
	flags, _ := mount.Options(options)
	m.add(mount.Entry{Path: target, Root: "/", Major: 259, Minor: m.minor, Type: fstype, Source: source, ReadOnly: flags&unix.MS_RDONLY != 0})
	return nil
}

func (m *machine) add(e mount.Entry) {
	e.ID, e.Shared = len(m.table)+10, true
	m.table = append(m.table, e)
}

func (m *machine) Bind(source, target string, readOnly bool) error {
	if err := m.effect(fmt.Sprintf("bind %s %v", filepath.Base(target), readOnly)); err != nil {
		return err
	}
	if _, err := os.Stat(target); err != nil {
		m.t.Errorf("bind on %s, which is not there: %v", target, err)
	}
	e, ok := m.table.At(source).Top()
	if !ok {
		e = mount.Entry{Minor: 5, Root: "/" + filepath.Base(source), Type: "devtmpfs"}
	}
	e.Path, e.ReadOnly = target, readOnly
	m.add(e)
	return nil
}

func (m *machine) Unmount(path string) error {
	if err := m.effect("unmount " + filepath.Base(path)); err != nil {
		return err
	}
	for i := len(m.table) - 1; i >= 0; i-- {
		if m.table[i].Path == path {
			m.table = append(m.table[:i:i], m.table[i+1:]...)
			return nil
		}
	}
	return unix.EINVAL
}

// Run is mkfs, which leaves the superblock of what it was asked for, or grows a filesystem.
func (m *machine) Run(_ context.Context, name string, _ ...string) ([]byte, error) {
	if err := m.effect(name); err != nil {
		return nil, err
	}
	maps.Copy(m.disk, map[string]map[int64]string{"mkfs.ext4": ext4, "mkfs.xfs": xfs}[name])
	return nil, nil
}

var (
	ext4 = map[int64]string{1080: "\x53\xef", 1024 + 0x60: "\x40"}
	xfs  = map[int64]string{0: "XFSB"}
)

func (m *machine) Open(path string) (device, error) {
	if m.dead || !m.connected {
		return nil, fmt.Errorf("open %s: %w", path, unix.ENXIO)
	}
	return disk{m: m, path: path, minor: m.minor}, nil
}

func (m *machine) Flush(_ context.Context, _ string, exclusive bool) error {
	if m.busy && exclusive {
		return storage.ErrBusy
	}
	return m.effect("flush")
}

func (m *machine) Alive(context.Context, string) error {
	if m.dead {
		return errFake
	}
	return nil
}

func (m *machine) Statfs(context.Context, string) (unix.Statfs_t, error) {
	return unix.Statfs_t{Frsize: 4096, Blocks: 100, Bfree: 60, Bavail: 50, Files: 10, Ffree: 7}, nil
}

// disk is the volume's device.
type disk struct {
	m     *machine
	path  string
	minor uint32
}

func (d disk) Path() string              { return d.path }
func (d disk) Size() int64               { return d.m.size }
func (d disk) Numbers() (uint32, uint32) { return 259, d.minor }
func (d disk) Close() error              { return nil }

func (d disk) ReadAt(b []byte, off int64) (int, error) {
	if bad := d.m.bad; bad != 0 && bad >= off && bad < off+int64(len(b)) {
		return 0, errFake
	}
	clear(b)
	for at, text := range d.m.disk {
		for i := range len(text) {
			if p := at + int64(i) - off; p >= 0 && p < int64(len(b)) {
				b[p] = text[i]
			}
		}
	}
	if off+int64(len(b)) > d.Size() {
		return int(d.Size() - off), io.EOF
	}
	return len(b), nil
}

// volumeContext is what the controller records for the volume.
func volumeContext(extra ...string) map[string]string {
	c := map[string]string{
		"target_id": nqn, "address": "10.0.0.1", "port": "4420",
		attach.Prefix + "protocol-type": "nvmeof-tcp", attach.Prefix + "fs-type": "ext4",
	}
	for i := 0; i < len(extra); i += 2 {
		c[extra[i]] = extra[i+1]
	}
	return c
}

func mountCapability(mode csi.VolumeCapability_AccessMode_Mode, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: flags}},
	}
}

func blockCapability() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}},
	}
}

var (
	writer = mountCapability(csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER)
	reader = mountCapability(csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY)
)

func (m *machine) stageRequest(c *csi.VolumeCapability, extra ...string) *csi.NodeStageVolumeRequest {
	return &csi.NodeStageVolumeRequest{
		VolumeId: volumeID, StagingTargetPath: m.staging(), VolumeCapability: c, VolumeContext: volumeContext(extra...),
	}
}

func (m *machine) publishRequest(c *csi.VolumeCapability, target string, readOnly bool) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: volumeID, StagingTargetPath: m.staging(), TargetPath: m.target(target), VolumeCapability: c, Readonly: readOnly,
	}
}

// stage stages the volume and forgets the trace of it.
func (m *machine) stage(c *csi.VolumeCapability, extra ...string) {
	m.t.Helper()
	if _, err := m.server().NodeStageVolume(m.t.Context(), m.stageRequest(c, extra...)); err != nil {
		m.t.Fatal(err)
	}
	m.trace = nil
}

// publish publishes the volume and forgets the trace of it.
func (m *machine) publish(c *csi.VolumeCapability, target string, readOnly bool) {
	m.t.Helper()
	if _, err := m.server().NodePublishVolume(m.t.Context(), m.publishRequest(c, target, readOnly)); err != nil {
		m.t.Fatal(err)
	}
	m.trace = nil
}

// recorded reports whether a stage record is there.
func (m *machine) recorded() bool {
	entries, err := os.ReadDir(filepath.Join(m.dir, "state"))
	if err != nil {
		m.t.Fatal(err)
	}
	return len(entries) > 0
}

// record is the path of the stage record.
func (m *machine) record() string {
	return filepath.Join(m.dir, "state", "storage-1%2Fnvmeof-tcp%2Flvm-lv%2Fvg0%2Fpvc-1.json")
}
