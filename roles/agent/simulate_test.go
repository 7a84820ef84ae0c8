package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// simulation is an agent with --dry-run --serve, whose state directory outlives it.
type simulation struct {
	t   *testing.T
	cfg Config
	log *observer.ObservedLogs
	*agentrpc.Client
	stop func() error
}

const simulatedConfig = `backends:
- lvm: {volumeGroup: vg0}
- zfs: {pool: tank, parentDataset: k8s/volumes}
`

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newSimulation(t *testing.T) *simulation {
	s := &simulation{t: t, cfg: Config{
		File: writeConfig(t, simulatedConfig), StateDir: filepath.Join(t.TempDir(), "state"), Simulate: 1 << 30,
	}}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// start runs the agent as Run does, on a port the kernel chooses.
func (s *simulation) start() {
	s.t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	s.log = logs
	ctx, cancel := context.WithCancel(context.Background())
	s.cfg.Listen = "127.0.0.1:0"
	done := make(chan error, 1)
	go func() { done <- Run(ctx, s.cfg, zap.New(core)) }()
	address := ""
	for address == "" {
		for _, line := range logs.FilterMessage("serving").All() {
			address, _ = line.ContextMap()["address"].(string)
		}
		select {
		case err := <-done:
			s.t.Fatalf("Run = %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	client, err := agentrpc.Dial(address, agentrpc.Config{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.Client = client
	s.stop = func() error {
		s.Client.Close()
		cancel()
		err := <-done
		done <- nil // stop twice is stop once
		return err
	}
}

// effects answers what the log says it would have done, since the last call.
func (s *simulation) effects() string {
	var all []string
	for _, e := range s.log.FilterMessage("dry-run").TakeAll() {
		would, _ := e.ContextMap()["would"].(string)
		all = append(all, would)
	}
	s.log.TakeAll()
	return strings.Join(all, "\n")
}

func (s *simulation) wantEffects(call string, want ...string) {
	s.t.Helper()
	got := s.effects()
	for _, w := range want {
		if !strings.Contains(got, w) {
			s.t.Errorf("%s logged\n%s\nwant %q in it", call, got, w)
		}
	}
}

// lives are a volume of each backend, and what its life must have been seen to do.
var lives = map[string]struct {
	spec  storage.Spec
	made  string
	grown string
	gone  string
}{
	"lvm": {
		storage.Spec{ID: storage.VolumeID{Pool: "vg0", Name: "a"}, Bytes: 8 << 20, Backend: storage.LVMLV,
			LVM: &storage.LVMParams{VolumeGroup: "vg0", Mode: "linear"}},
		"run lvcreate", "run lvextend", "run lvremove",
	},
	"zfs": {
		storage.Spec{ID: storage.VolumeID{Pool: "tank", Name: "a"}, Bytes: 8 << 20, Backend: storage.ZFSZvol,
			ZFS: &storage.ZFSParams{Pool: "tank", ParentDataset: "k8s/volumes", Properties: map[string]string{"volblocksize": "8k", "volmode": "dev"}}},
		"run zfs create -s -V 8388608 -o volblocksize=8k", "run zfs set volsize=16777216", "run zfs destroy",
	},
}

func exportOf(id storage.VolumeID) transport.Export {
	return transport.Export{Kind: transport.NVMeTCP, Volume: id.String(), Portal: portal, ACL: true}
}

func (s *simulation) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// A cluster without kernel modules: the whole life of a volume, by the real agent.
func TestSimulation_LifeOfAVolume(t *testing.T) {
	for name, life := range lives {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ctx, id, backend := newSimulation(t), t.Context(), life.spec.ID, life.spec.Backend
			if _, err := s.Reconcile(ctx, true, nil); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second is a retry
				vol, err := s.CreateVolume(ctx, token(1), life.spec)
				if err != nil || vol.Bytes != 8<<20 {
					t.Fatalf("CreateVolume = %+v, %v", vol, err)
				}
			}
			s.wantEffects("CreateVolume", life.made)
			got, err := s.ExportVolume(ctx, token(1), backend, exportOf(id))
			if err != nil || got.Portal != portal || !got.Enabled {
				t.Fatalf("ExportVolume = %+v, %v", got, err)
			}
			s.wantEffects("ExportVolume", "mkdir nvmet/subsystems/"+got.ID, "enable 1", "link nvmet/ports/")
			s.must(s.AllowInitiator(ctx, token(2), backend, transport.NVMeTCP, id, host1, true))
			s.wantEffects("AllowInitiator", "allowed_hosts/"+host1)
			if err := s.DeleteVolume(ctx, token(2), backend, id); !errors.Is(err, storage.ErrPrecondition) {
				t.Errorf("DeleteVolume while exported = %v, want ErrPrecondition", err)
			}
			size, err := s.ExpandVolume(ctx, token(3), backend, transport.NVMeTCP, id, 16<<20)
			if err != nil || size != 16<<20 {
				t.Errorf("ExpandVolume = %d, %v", size, err)
			}
			s.wantEffects("ExpandVolume", life.grown, "revalidate_size 1")
			s.must(s.DenyInitiator(ctx, token(4), backend, transport.NVMeTCP, id, host1))
			s.must(s.UnexportVolume(ctx, token(5), backend, transport.NVMeTCP, id))
			s.must(s.DeleteVolume(ctx, token(5), backend, id))
			s.wantEffects("the end", "rmdir nvmet/subsystems/"+got.ID, life.gone)
		})
	}
}

// Its pools survive a restart, as a node's do a reboot; the gate then brings the exports back.
func TestSimulation_Restart(t *testing.T) {
	s, ctx := newSimulation(t), t.Context()
	var items []agentrpc.Item
	for _, life := range lives {
		_, err := s.CreateVolume(ctx, token(1), life.spec)
		s.must(err)
		items = append(items, agentrpc.Item{Token: token(1), Backend: life.spec.Backend, Export: exportOf(life.spec.ID), Ready: true})
	}
	s.must(s.stop())
	s.start()
	health, err := s.Health(ctx)
	if err != nil || !health.Gated || !strings.HasSuffix(health.Version, "+dry-run") {
		t.Errorf("Health = %+v, %v, want a gated one that says dry-run", health, err)
	}
	for _, sub := range health.Subsystems {
		if !sub.Healthy {
			t.Errorf("%s %s: %s", sub.Name, sub.Pool, sub.Message)
		}
	}
	results, err := s.Reconcile(ctx, true, items)
	s.must(err)
	for _, r := range results {
		s.must(r.Err)
	}
	s.wantEffects("Reconcile", "run lvchange", "link nvmet/ports/")
	have, err := s.Capabilities(ctx)
	if err != nil || len(have.Pools) != 2 || len(have.Protocols) != 1 || have.Pools[0].Capacity.Available != 1<<30-8<<20 {
		t.Errorf("Capabilities = %+v, %v, want both pools with what the volumes left", have, err)
	}
}

// Marks of volumes that never were must not meet real ones, nor the other way round.
func TestState_of(t *testing.T) {
	s := newSimulation(t)
	s.must(s.stop())
	real := s.cfg
	real.Simulate = 0
	if err := Run(t.Context(), real, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "belongs to a simulated agent") {
		t.Errorf("Run on a simulation's state directory = %v, want a refusal", err)
	}
	other := s.cfg
	other.StateDir = t.TempDir()
	s.must(os.MkdirAll(filepath.Join(other.StateDir, "generations"), 0o700))
	s.must(os.WriteFile(filepath.Join(other.StateDir, "generations", "mark"), nil, 0o600))
	if err := Run(t.Context(), other, zap.NewNop()); err == nil || !strings.Contains(err.Error(), "belongs to a real agent") {
		t.Errorf("Run of a simulation on real marks = %v, want a refusal", err)
	}
}
