package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/transport"
)

// machine is a guest as a storage node: a volume group on a spare disk, the kernel's
// nvmet, and an agent whose files lie where the next process finds them.
type machine struct {
	t       testing.TB
	dir     string
	group   string
	backend string // entry of the configuration
	kind    storage.BackendType

	programs host.Runner // the agent's; nil: the machine's
	*agentrpc.Client
	stop func() error
}

const (
	testGroup  = "pillar-agent"
	testListen = "127.0.0.1:19500"
	nvmetDir   = "/sys/kernel/config/nvmet"
)

var (
	testID     = storage.VolumeID{Pool: testGroup, Name: "pvc-1"}
	testPortal = transport.Portal{Address: "127.0.0.1", Port: 14420}
	testNQN    = "nqn.2026-01.com.bhyoo.pillar-csi:" + testGroup + ".pvc-1"
)

// newMachine makes the volume group; a child that is to be killed finds it made.
func newMachine(t *testing.T) *machine {
	t.Helper()
	hosttest.Need(t, "dm_mod", "nvmet", "nvmet_tcp", "bin:lvm")
	m := &machine{t: t, dir: filepath.Join(os.TempDir(), "pillar-agent-test"), group: testGroup,
		backend: "{lvm: {volumeGroup: " + testGroup + "}}", kind: storage.LVMLV}
	if hosttest.InChild(t) {
		return m
	}
	m.wipe() // of a test that was killed
	_ = m.run("vgremove", "--yes", "--force", testGroup)
	if err := m.run("vgcreate", "--yes", "--physicalextentsize", "4m", testGroup, hosttest.Disk(t, 0)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.wipe()
		_ = m.run("vgremove", "--yes", "--force", testGroup)
	})
	return m
}

// run runs an LVM tool that makes and removes nodes itself, as the agent's do: udev would
// leave behind what it did not make.
func (m *machine) run(argv ...string) error {
	_, err := host.Exec{Env: []string{"DM_DISABLE_UDEV=1"}}.Run(context.Background(), argv[0], argv[1:]...)
	return err
}

// wipe takes the agent's files and every nvmet object away, as a new machine has none.
func (m *machine) wipe() {
	os.RemoveAll(m.dir)
	clearTargets()
}

func clearTargets() {
	for _, pattern := range []string{"ports/*/subsystems/*", "subsystems/*/allowed_hosts/*", "subsystems/*/namespaces/*", "subsystems/*", "ports/*", "hosts/*"} {
		paths, _ := filepath.Glob(filepath.Join(nvmetDir, pattern))
		for _, p := range paths {
			os.Remove(p)
		}
	}
}

// start runs an agent until the test ends or stops it, and waits until it answers.
func (m *machine) start() error {
	config := filepath.Join(m.dir, "agent.yaml")
	err := errors.Join(os.MkdirAll(m.dir, 0o700), os.WriteFile(config, []byte("backends: ["+m.backend+"]"), 0o600))
	if err != nil {
		return err
	}
	log, err := telemetry.NewLogger("error")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{File: config, Listen: testListen, StateDir: filepath.Join(m.dir, "state"), Run: m.programs}, log)
	}()
	if err := listens(done); err != nil {
		cancel()
		return err
	}
	if m.Client, err = agentrpc.Dial(testListen, agentrpc.Config{}); err != nil {
		cancel()
		return err
	}
	client := m.Client
	m.stop = sync.OnceValue(func() error {
		client.Close()
		cancel()
		return <-done
	})
	m.t.Cleanup(func() { m.stop() })
	return nil
}

// listens waits until the agent does; one that ended instead says why. A client that came
// before it would wait a second until it tried again.
func listens(done chan error) error {
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		select {
		case err := <-done:
			return fmt.Errorf("agent ended: %w", err)
		default:
		}
		conn, err := net.Dial("tcp", testListen)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(end) {
			return fmt.Errorf("agent does not listen: %w", err)
		}
	}
}

// reboot stops the agent and leaves what a reboot leaves: marks and LVs on their disks, and
// nothing in the kernel.
func (m *machine) reboot() {
	m.t.Helper()
	m.must(m.stop())
	clearTargets()
	if m.kind == storage.ZFSZvol { // the host imports it
		m.must(m.run("zpool", "export", testGroup))
		m.must(m.run("zpool", "import", "-d", "/dev", "-o", "cachefile=none", testGroup))
		return
	}
	m.must(m.run("vgchange", "--activate", "n", testGroup))
}

func (m *machine) mustStart() {
	m.t.Helper()
	m.must(m.start())
}

func (m *machine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) spec(bytes int64) storage.Spec {
	s := storage.Spec{ID: storage.VolumeID{Pool: m.group, Name: testID.Name}, Bytes: bytes, Backend: m.kind}
	if m.kind == storage.ZFSZvol {
		s.ZFS = &storage.ZFSParams{Pool: m.group, ParentDataset: "k8s", Properties: map[string]string{"volmode": "dev"}}
	} else {
		s.LVM = &storage.LVMParams{VolumeGroup: m.group, Mode: lvm.Linear}
	}
	return s
}

// device is the path of the volume's device.
func (m *machine) device() string {
	if m.kind == storage.ZFSZvol {
		return "/dev/zvol/" + testParent + "/" + testID.Name
	}
	return "/dev/" + testID.String()
}

func (m *machine) create(generation int64) error {
	_, err := m.CreateVolume(context.Background(), token(generation), m.spec(5<<20))
	return err
}

func testExport(hosts ...string) transport.Export {
	return transport.Export{Kind: transport.NVMeTCP, Volume: testID.String(), Portal: testPortal, ACL: true, Initiators: hosts}
}

func (m *machine) export(generation int64, hosts ...string) error {
	_, err := m.ExportVolume(context.Background(), token(generation), m.kind, testExport(hosts...))
	return err
}

func (m *machine) unexport(generation int64) error {
	return m.UnexportVolume(context.Background(), token(generation), m.kind, transport.NVMeTCP, testID)
}

func (m *machine) remove(generation int64) error {
	return m.DeleteVolume(context.Background(), token(generation), m.kind, testID)
}

// restore sends the complete request; every item must succeed.
func (m *machine) restore(items ...agentrpc.Item) error {
	results, err := m.Reconcile(context.Background(), true, items)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	return err
}

// volumes answers the LVs of the group, by lvs(8), or the zvols of the pool.
func (m *machine) volumes() []string {
	m.t.Helper()
	argv := []string{"lvs", "--noheadings", "-o", "lv_name", testGroup}
	if m.kind == storage.ZFSZvol {
		argv = []string{"zfs", "list", "-H", "-o", "name", "-t", "volume", "-r", testGroup}
	}
	out, err := host.Exec{}.Run(context.Background(), argv[0], argv[1:]...)
	m.must(err)
	names := strings.Split(strings.TrimSpace(string(out)), "\n") // an unfinished zvol's has a blank
	for i, name := range names {
		names[i] = strings.TrimPrefix(strings.TrimSpace(name), testParent+"/")
	}
	return slices.DeleteFunc(names, func(name string) bool { return name == "" })
}

// glob answers what of nvmet matches, relative to its directory.
func (m *machine) glob(pattern string) []string {
	paths, err := filepath.Glob(filepath.Join(nvmetDir, pattern))
	m.must(err)
	for i, p := range paths {
		paths[i] = strings.TrimPrefix(p, nvmetDir+"/")
	}
	return paths
}

func (m *machine) wantVolumes(want ...string) {
	m.t.Helper()
	if got := m.volumes(); !slices.Equal(got, want) {
		m.t.Errorf("volumes = %q, want %q", got, want)
	}
}

// wantExport wants one export, linked into one port, that admits exactly these hosts.
func (m *machine) wantExport(hosts ...string) {
	m.t.Helper()
	links := m.glob("ports/*/subsystems/*")
	if len(links) != 1 || filepath.Base(links[0]) != testNQN {
		m.t.Errorf("links = %q, want one to %s", links, testNQN)
	}
	var admitted []string
	for _, p := range m.glob("subsystems/" + testNQN + "/allowed_hosts/*") {
		admitted = append(admitted, filepath.Base(p))
	}
	if !slices.Equal(admitted, hosts) {
		m.t.Errorf("admitted = %q, want %q", admitted, hosts)
	}
	for attr, want := range map[string]string{"namespaces/1/enable": "1", "namespaces/1/device_path": m.device(), "attr_allow_any_host": "0"} {
		got, err := os.ReadFile(filepath.Join(nvmetDir, "subsystems", testNQN, attr))
		if err != nil || strings.TrimSpace(string(got)) != want {
			m.t.Errorf("%s = %q, %v, want %q", attr, got, err, want)
		}
	}
}

// wantNothing wants neither LV nor export nor pinned identity.
func (m *machine) wantNothing() {
	m.t.Helper()
	m.wantVolumes()
	identities, _ := filepath.Glob(filepath.Join(m.dir, "state/nvmet-identity/*"))
	if left := append(m.glob("subsystems/*"), identities...); len(left) > 0 {
		m.t.Errorf("left: %q, want nothing", left)
	}
}

func TestAgent_life_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	ctx := t.Context()
	if err := m.export(2, host1); !errors.Is(err, agentrpc.ErrUnavailable) {
		t.Errorf("export while gated = %v, want ErrUnavailable", err)
	}
	m.must(m.restore())
	m.must(m.create(1))
	m.must(m.create(1))
	m.wantVolumes(testID.Name)
	m.must(m.export(2))
	m.must(m.export(2))
	m.wantExport()
	m.must(m.AllowInitiator(ctx, token(3), storage.LVMLV, transport.NVMeTCP, testID, host1, true))
	m.wantExport(host1)
	if err := m.remove(3); !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), testNQN) {
		t.Errorf("DeleteVolume while exported = %v, want ErrPrecondition that names %s", err, testNQN)
	}
	m.must(m.DenyInitiator(ctx, token(4), storage.LVMLV, transport.NVMeTCP, testID, host1))
	m.wantExport()
	for range 2 { // the second is a retry after the end
		m.must(m.unexport(5))
		m.must(m.remove(5))
		m.wantNothing()
	}
	for generation, want := range map[int64]fencing.Decision{4: fencing.RejectEnded, 5: fencing.RejectEnded, 6: fencing.RejectEnded} {
		var r *fencing.Rejection
		if err := m.create(generation); !errors.As(err, &r) || r.Decision != want {
			t.Errorf("create of generation %d after the end = %v, want %s", generation, err, want)
		}
	}
	m.wantNothing()
}

// The agent grows a volume that is exported, and repeats itself.
func TestAgent_expand_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.restore())
	m.must(m.create(1))
	m.must(m.export(2, host1))
	for range 2 {
		size, err := m.ExpandVolume(t.Context(), token(3), storage.LVMLV, transport.NVMeTCP, testID, 13<<20)
		if err != nil || size != 16<<20 {
			t.Errorf("ExpandVolume = %d, %v, want 16 MiB", size, err)
		}
		if got, err := blockdev.Size("/dev/" + testID.String()); err != nil || got != size {
			t.Errorf("Size of the device = %d, %v, want %d", got, err, size)
		}
		m.wantExport(host1)
	}
	_, err := m.ExpandVolume(t.Context(), token(4), storage.LVMLV, transport.NVMeTCP, testID, 8<<20)
	if !errors.Is(err, storage.ErrOutOfRange) || !strings.Contains(err.Error(), "cannot shrink") {
		t.Errorf("ExpandVolume to less = %v, want ErrOutOfRange", err)
	}
	m.must(m.unexport(5))
	m.must(m.remove(5))
	m.wantNothing()
}

func TestAgent_staleToken_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.restore())
	m.must(m.create(7))
	for name, err := range map[string]error{
		"create": m.create(6), "export": m.export(6), "unexport": m.unexport(6), "delete": m.remove(6),
	} {
		if !errors.Is(err, fencing.ErrStale) {
			t.Errorf("%s with a superseded token = %v, want ErrStale", name, err)
		}
	}
	m.wantVolumes(testID.Name)
	m.must(m.remove(7))
}

func TestAgent_restart_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.restore())
	m.must(m.create(1))
	m.must(m.export(2, host1))
	item := m.item(2, host1)

	m.must(m.stop())
	m.wantExport(host1) // I/O does not depend on the agent
	m.mustStart()
	m.must(m.restore(item))
	m.wantExport(host1)

	m.reboot()
	m.mustStart()
	m.must(m.restore(item))
	m.wantExport(host1)
	m.must(m.unexport(3))
	m.must(m.remove(3))
	m.wantNothing()
}

func TestAgent_secondAgent_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	log, err := telemetry.NewLogger("error")
	m.must(err)
	cfg := Config{File: filepath.Join(m.dir, "agent.yaml"), Listen: "127.0.0.1:0", StateDir: filepath.Join(m.dir, "state")}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := Run(ctx, cfg, log); err == nil || !strings.Contains(err.Error(), "in use by another agent") {
		t.Errorf("second agent = %v, want a refusal", err)
	}
}

func TestAgent_groupFull_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.restore())
	_, err := m.CreateVolume(t.Context(), token(1), m.spec(1<<40))
	if !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("CreateVolume of 1 TiB = %v, want ErrNoSpace", err)
	}
	m.wantNothing()
	m.must(m.create(2)) // the retry asks for less
	m.must(m.remove(3))
}

func TestAgent_groupMissing_kernel(t *testing.T) {
	m := newMachine(t)
	m.group, m.backend = "pillar-absent", "{lvm: {volumeGroup: pillar-absent}}"
	m.mustStart()
	m.must(m.restore())
	h, err := m.Health(t.Context())
	if err != nil || !h.Serving || healthy(h, "pool") || !healthy(h, "nvmet_configfs") {
		t.Errorf("Health = %+v, %v, want serving with an unhealthy pool", h, err)
	}
	if _, err := m.Capacity(t.Context(), storage.LVMLV, m.group); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Capacity = %v, want ErrNotFound", err)
	}
	if err := m.create(1); err == nil {
		t.Error("CreateVolume succeeded without its volume group")
	}
	absent := storage.VolumeID{Pool: m.group, Name: testID.Name}
	err = m.DeleteVolume(t.Context(), token(2), storage.LVMLV, absent)
	if err == nil || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("DeleteVolume = %v, want a failure that proves nothing", err)
	}
}
