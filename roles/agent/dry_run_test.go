package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// tree answers every file below dir with its content, links and directories with a word.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		all[strings.TrimPrefix(path, dir)] = d.Type().String()
		if d.Type().IsRegular() {
			content, err := os.ReadFile(path)
			all[strings.TrimPrefix(path, dir)] = string(content)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// storageHost is a host to look at: files in a directory, tools that answer for pools, and
// what was run.
type storageHost struct {
	t    *testing.T
	root host.Root
	cfg  Config
	m    *dryrun.Machine

	mu  sync.Mutex
	ran []string
}

func newStorageHost(t *testing.T) *storageHost {
	h := &storageHost{t: t, root: host.Root(t.TempDir())}
	m, err := dryrun.NewMachine(t.TempDir(), []dryrun.Pool{
		{VolumeGroup: "vg0", Bytes: 100 << 30}, {ZFS: "tank", ParentDataset: "k8s/volumes", Bytes: 10 << 30},
	}, func(e dryrun.Effect) {})
	if err != nil {
		t.Fatal(err)
	}
	h.m = m
	h.cfg = Config{File: writeConfig(t, simulatedConfig), Listen: ":9500", StateDir: "/var/lib/pillar-csi/agent", Root: h.root}
	for _, dir := range []string{"sys/module/nvmet", "sys/module/nvmet_tcp", "sys/module/dm_mod", "sys/module/zfs", "sys/kernel/config/nvmet/subsystems", "sys/kernel/config/nvmet/ports"} {
		if err := os.MkdirAll(h.root.Path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	h.write("proc/sys/kernel/osrelease", "6.1.0-28-amd64\n")
	return h
}

func (h *storageHost) write(name, content string) {
	h.t.Helper()
	path := h.root.Path(name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *storageHost) remove(name string) {
	h.t.Helper()
	if err := os.RemoveAll(h.root.Path(name)); err != nil {
		h.t.Fatal(err)
	}
}

// Run implements host.Runner.
func (h *storageHost) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	h.mu.Lock()
	h.ran = append(h.ran, name+" "+strings.Join(args, " "))
	h.mu.Unlock()
	return h.m.Run(ctx, name, args...)
}

func (h *storageHost) look(uid int) dryrun.Report {
	h.t.Helper()
	r, err := dryRun(h.t.Context(), h.cfg, kernelNode(dryrun.Reader{Runner: h, Modules: dryrun.Modules{Root: h.root}}, h.root), uid)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Config, r.Agent = "agent.yaml", "v0.0.0"
	return r
}

// A host with everything: what it says, and that nothing is different afterwards.
func TestDryRun_ready(t *testing.T) {
	h := newStorageHost(t)
	h.cfg.StateDir = filepath.Join(t.TempDir(), "agent")
	before := tree(t, string(h.root))
	r := h.look(0)
	if !r.Ready {
		t.Errorf("Missing = %+v, want nothing", r.Missing)
	}
	wantSteps(t, r.Steps, []string{
		"agent start create " + h.cfg.StateDir + "/", "agent start mount configfs", "agent start listen on TCP :9500",
		"volume in vg0 create " + h.cfg.StateDir + "/generations/", "volume in vg0 run lvcreate",
		"volume in vg0 write 1048576 bytes at byte 0 of /dev/vg0/pvc-example", "volume in vg0 set nvmet/subsystems/",
		"volume in vg0 link nvmet/ports/", "volume in vg0 link nvmet/subsystems/",
		"volume in tank run zfs create", "volume in tank mkdir nvmet/subsystems/", "volume in tank link nvmet/ports/",
	})
	want := []dryrun.PoolFound{
		{Name: "vg0", Backend: "lvm-lv", TotalBytes: 100 << 30, AvailableBytes: 100 << 30},
		{Name: "tank", Backend: "zfs-zvol", TotalBytes: 10 << 30, AvailableBytes: 10 << 30},
	}
	if diff := cmp.Diff(want, r.Pools); diff != "" {
		t.Errorf("Pools (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, tree(t, string(h.root))); diff != "" {
		t.Errorf("the host's files (-before +after):\n%s", diff)
	}
	if _, err := os.Stat(h.cfg.StateDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state directory: %v, want it not made", err)
	}
	for _, line := range h.ran {
		if tool, _, _ := strings.Cut(line, " "); !slices.Contains([]string{"vgs", "lvs", "zfs", "zpool"}, tool) {
			t.Errorf("ran %s", line)
		}
	}
}

// wantSteps wants steps that begin so, in this order, among others.
func wantSteps(t testing.TB, steps []dryrun.Step, want []string) {
	t.Helper()
	left := want
	var all []string
	for _, s := range steps {
		line := s.When + " " + s.Does + " " + s.What
		all = append(all, line)
		if len(left) > 0 && strings.HasPrefix(line, left[0]) {
			left = left[1:]
		}
	}
	if len(left) > 0 {
		t.Errorf("steps\n%s\nwant next: %s", strings.Join(all, "\n"), left[0])
	}
}

// What the report says of the agent's start is what a start does.
func TestDryRun_tellsTheStart(t *testing.T) {
	s := newSimulation(t)
	s.must(s.stop())
	dir := filepath.Join(t.TempDir(), "state")
	r, err := dryRun(t.Context(), Config{File: s.cfg.File, StateDir: dir}, kernelNode(&recordingRunner{}, host.Root(t.TempDir())), 0)
	s.must(err)
	var said []string
	for _, step := range r.Steps {
		if step.When == atAgentStart && step.Does == "create" {
			said = append(said, strings.TrimSuffix(strings.TrimPrefix(step.What, dir), "/"))
		}
	}
	st, err := openState(dir)
	s.must(err)
	_, err = kernelNode(host.Exec{}, "").server(file{}, st, zap.NewNop())
	s.must(err)
	var did []string
	for path := range tree(t, dir) {
		did = append(did, path)
	}
	slices.Sort(said)
	slices.Sort(did)
	if diff := cmp.Diff(did, said); diff != "" {
		t.Errorf("created (-by the agent +in the report):\n%s", diff)
	}
}

// recordingRunner knows no program.
type recordingRunner struct{}

func (*recordingRunner) Run(context.Context, string, ...string) ([]byte, error) {
	return nil, host.ErrNoProgram
}

// Each thing a host can lack is named with its fix, and is the only one.
func TestDryRun_missing(t *testing.T) {
	tests := map[string]struct {
		spoil     func(h *storageHost)
		uid       int
		subsystem string
		problem   string
		fix       string
	}{
		"not root":  {func(*storageHost) {}, 1000, "user", "is not root", "privileged: true"},
		"no module": {func(h *storageHost) { h.remove("sys/module/nvmet_tcp") }, 0, "modules", "nvmet_tcp", "modprobe nvmet_tcp"},
		"no module in this kernel": {func(h *storageHost) {
			h.remove("sys/module/nvmet_tcp")
			h.write("lib/modules/6.1.0-28-amd64/modules.dep", "kernel/a.ko:\n")
		}, 0, "modules", "nvmet_tcp", "linux-modules-extra-6.1.0-28-amd64"},
		"no ZFS":   {func(h *storageHost) { h.remove("sys/module/zfs") }, 0, "zfs", "not loaded", "zfs-dkms"},
		"no group": {func(h *storageHost) { delete(h.m.Groups, "vg0") }, 0, "pool", "not found", "vgcreate vg0"},
		"no pool":  {func(h *storageHost) { delete(h.m.ZFS, "tank") }, 0, "pool", "no such pool", "zpool import tank"},
		"no parent dataset": {func(h *storageHost) {
			delete(h.m.ZFS["tank"].Datasets, "tank/k8s/volumes")
		}, 0, "pool", "parent dataset is not there", "zfs create -p tank/k8s/volumes"},
		"a simulation's state directory": {func(h *storageHost) {
			h.cfg.StateDir = h.root.Path("simulated")
			h.write("simulated/simulation.json", "{}")
		}, 0, "state", "belongs to a simulated agent", "--state-dir"},
		"a state directory below a file": {func(h *storageHost) {
			h.write("file", "")
			h.cfg.StateDir = h.root.Path("file/state")
		}, 0, "state", "not a directory", "--state-dir"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newStorageHost(t)
			h.cfg.StateDir = h.root.Path("state")
			tt.spoil(h)
			r := h.look(tt.uid)
			if r.Ready || len(r.Missing) == 0 {
				t.Fatalf("Ready = %v, Missing = %+v", r.Ready, r.Missing)
			}
			for _, m := range r.Missing {
				if m.Subsystem != tt.subsystem || !strings.Contains(m.Problem, tt.problem) || !strings.Contains(m.Fix, tt.fix) {
					t.Errorf("Missing %+v, want only %s: %s; fix: %s", m, tt.subsystem, tt.problem, tt.fix)
				}
			}
		})
	}
}

// A host with a thin pool.
func newThinHost(t *testing.T) *storageHost {
	h := newStorageHost(t)
	m, err := dryrun.NewMachine(t.TempDir(), []dryrun.Pool{{VolumeGroup: "vg0", ThinPool: "tp", Bytes: 100 << 30}}, func(dryrun.Effect) {})
	if err != nil {
		t.Fatal(err)
	}
	h.m = m
	h.cfg.File = writeConfig(t, "backends:\n- lvm: {volumeGroup: vg0, thinPool: tp, provisioningMode: thin}\n")
	h.cfg.StateDir = h.root.Path("state")
	if err := os.MkdirAll(h.root.Path("sys/module/dm_thin_pool"), 0o755); err != nil {
		t.Fatal(err)
	}
	return h
}

func TestDryRun_thin(t *testing.T) {
	h := newThinHost(t)
	r := h.look(0)
	want := []dryrun.PoolFound{{Name: "vg0", Backend: "lvm-lv", TotalBytes: 96636764160, AvailableBytes: 96636764160}}
	if diff := cmp.Diff(want, r.Pools); diff != "" || !r.Ready {
		t.Errorf("Missing = %+v, Pools (-want +got):\n%s", r.Missing, diff)
	}
	wantSteps(t, r.Steps, []string{"volume in vg0 run lvcreate --config", "volume in vg0 run lvchange --config", "volume in vg0 link nvmet/ports/"})

	h.m.Reboot() // and nobody activates anything: the agent will
	r = h.look(0)
	if !r.Ready {
		t.Errorf("Missing = %+v, want nothing", r.Missing)
	}
	wantSteps(t, r.Steps, []string{"agent start run lvchange --config"})
}

// What a host of a thin pool can lack besides.
func TestDryRun_thinMissing(t *testing.T) {
	tests := map[string]struct {
		spoil        func(h *storageHost)
		problem, fix string
	}{
		"no pool":        {func(h *storageHost) { delete(h.m.Groups["vg0"].LVs, "tp") }, "no such thin pool", "lvcreate --type thin-pool --size SIZE --name tp vg0, or correct thinPool"},
		"no group":       {func(h *storageHost) { delete(h.m.Groups, "vg0") }, "not found", "vgcreate vg0"},
		"another kind":   {func(h *storageHost) { h.m.Groups["vg0"].LVs["tp"].Layout = "linear" }, `tp is "linear"`, "or correct thinPool"},
		"no pool yet":    {thinAsleep, "no such thin pool", "lvcreate --type thin-pool"},
		"module and all": {func(h *storageHost) { h.remove("sys/module/dm_thin_pool") }, "module dm_thin_pool is not loaded", "modprobe dm_thin_pool"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := newThinHost(t)
			tt.spoil(h)
			r := h.look(0)
			if len(r.Missing) != 1 || !strings.Contains(r.Missing[0].Problem, tt.problem) || !strings.Contains(r.Missing[0].Fix, tt.fix) {
				t.Errorf("Missing = %+v, want %q with %q alone", r.Missing, tt.problem, tt.fix)
			}
		})
	}
}

// thinAsleep is a host that has not loaded the module, because it has no thin pool yet.
func thinAsleep(h *storageHost) {
	delete(h.m.Groups["vg0"].LVs, "tp")
	h.remove("sys/module/dm_thin_pool")
	h.write("lib/modules/6.1.0-28-amd64/modules.dep", "kernel/dm-thin-pool.ko:\n")
}

// A module that is there to be loaded is what the init container does, and nothing missing.
func TestDryRun_loadable(t *testing.T) {
	h := newStorageHost(t)
	h.cfg.StateDir = h.root.Path("state")
	h.remove("sys/kernel/config")
	h.remove("sys/module/nvmet")
	h.remove("sys/module/nvmet_tcp")
	h.write("lib/modules/6.1.0-28-amd64/modules.dep", "kernel/nvmet-tcp.ko: kernel/nvmet.ko\nkernel/nvmet.ko:\n")
	r := h.look(0)
	want := []dryrun.Step{{When: atPodStart, Does: "load", What: "nvmet"}, {When: atPodStart, Does: "load", What: "nvmet_tcp"}}
	if diff := cmp.Diff(want, r.Steps[:2]); diff != "" || !r.Ready {
		t.Errorf("Ready = %v, Missing = %+v, Steps (-want +got):\n%s", r.Ready, r.Missing, diff)
	}
}

// deploy.md 15: 0 ready, 1 something is missing, 2 a bad configuration.
func TestCommand_exitCodes(t *testing.T) {
	good, bad := writeConfig(t, "backends: [{lvm: {volumeGroup: nosuchgroup}}]"), writeConfig(t, "backends: []")
	tests := map[string]struct {
		args []string
		want int
	}{
		"missing":           {[]string{"--dry-run", "--config", good}, 1},
		"missing, JSON":     {[]string{"--dry-run", "--config", good, "--output", "json"}, 1},
		"bad configuration": {[]string{"--dry-run", "--config", bad}, 2},
		"bad output":        {[]string{"--dry-run", "--config", good, "--output", "yaml"}, 2},
		"bad size":          {[]string{"--dry-run", "--serve", "--config", good, "--simulated-size", "big"}, 2},
		"serve alone":       {[]string{"--serve", "--config", good}, 2},
		"no configuration":  {[]string{"--dry-run"}, 2},
		"unknown flag":      {[]string{"--dry-run", "--config", good, "--force"}, 2},
		"an argument":       {[]string{"--dry-run", "--config", good, "vg0"}, 2},
		"no port":           {[]string{"--dry-run", "--config", good, "--listen", "10.0.0.1"}, 2},
		"no such port":      {[]string{"--dry-run", "--config", good, "--listen", ":95000"}, 2},
		"no state":          {[]string{"--dry-run", "--config", good, "--state-dir", ""}, 2},
		"state beside":      {[]string{"--dry-run", "--config", good, "--state-dir", "state"}, 2},
		"no port, serving":  {[]string{"--config", good, "--listen", "10.0.0.1"}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := Command()
			cmd.SetArgs(append([]string{"--state-dir", filepath.Join(t.TempDir(), "state")}, tt.args...))
			cmd.SilenceUsage = true
			cmd.SetOut(&strings.Builder{})
			cmd.SetErr(&strings.Builder{})
			var exit interface{ ExitCode() int }
			if err := cmd.ExecuteContext(t.Context()); !errors.As(err, &exit) || exit.ExitCode() != tt.want {
				t.Errorf("Execute = %v, want exit code %d", err, tt.want)
			}
		})
	}
}

// One pool that hangs is unwell, and the others are not (B-283).
func TestLook_hungPool(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50e6)
	defer cancel()
	well := &volumes{pools: []pool{{name: "vg0", Backend: hung{}}, {name: "vg1", Backend: degraded{}}, {name: "vg2", Backend: well{}}}}
	var got []string
	for _, f := range look(ctx, dryrun.Modules{}, well, nil) {
		got = append(got, f.pool+": "+f.message())
	}
	want := []string{"vg0: context deadline exceeded", "vg1: pool tank is DEGRADED", "vg2: "}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("look (-want +got):\n%s", diff)
	}
}

type well struct{ storage.Backend }

func (well) Pool(context.Context) (storage.Pool, error) { return storage.Pool{}, nil }
