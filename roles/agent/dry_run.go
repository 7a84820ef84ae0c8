package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
)

// dryFlags are the flags of a dry run.
type dryFlags struct {
	run, serve   bool
	size, output string
}

func (d *dryFlags) register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&d.run, "dry-run", false, "say what serving would do on this host and what the host lacks, and change nothing")
	cmd.Flags().BoolVar(&d.serve, "serve", false, "with --dry-run: answer the agent API from a simulation, with its own --state-dir")
	cmd.Flags().StringVar(&d.size, "simulated-size", "100Gi", "size of each simulated pool")
	cmd.Flags().StringVar(&d.output, "output", "text", "of a dry run: text or json")
}

// check answers the size of simulated pools in bytes, 0 if nothing is to be simulated.
func (d *dryFlags) check() (int64, error) {
	size, err := resource.ParseQuantity(d.size)
	switch {
	case d.serve && !d.run:
		return 0, &exitError{2, errors.New("--serve: only with --dry-run")}
	case d.output != "text" && d.output != "json":
		return 0, &exitError{2, fmt.Errorf("--output: %q, want text or json", d.output)}
	case err != nil || size.Value() <= 0:
		return 0, &exitError{2, fmt.Errorf("--simulated-size: %q is no size, write it like 100Gi", d.size)}
	case !d.serve:
		return 0, nil
	}
	return size.Value(), nil
}

// exitError ends the process with a code of its own.
type exitError struct {
	code int
	error
}

// ExitCode is 1 for a host that lacks something, 2 for a configuration that is none.
func (e *exitError) ExitCode() int { return e.code }

func (e *exitError) Unwrap() error { return e.error }

// print looks at this host and writes the report.
func (d *dryFlags) print(ctx context.Context, cfg Config, w io.Writer) error {
	run := dryrun.Reader{Runner: host.Exec{}, Modules: dryrun.Modules{Root: cfg.Root}}
	r, err := dryRun(ctx, cfg, kernelNode(run, cfg.Root), os.Geteuid())
	if err != nil {
		return &exitError{2, err}
	}
	if d.output == "json" {
		err = r.JSON(w)
	} else {
		err = r.Text(w)
	}
	if err == nil && !r.Ready {
		err = &exitError{1, errors.New("this host is not ready")}
	}
	return err
}

// When the steps of a report come.
const (
	atPodStart   = "pod start"   // by the init container
	atAgentStart = "agent start" // by the agent, before it answers
)

// dryRun looks at a node and changes nothing on it. Its error is the configuration's.
func dryRun(ctx context.Context, cfg Config, n node, uid int) (dryrun.Report, error) {
	mods := dryrun.Modules{Root: n.root}
	r := dryrun.Report{Version: 1, Agent: telemetry.Version, Kernel: mods.Release(), Config: cfg.File}
	f, err := readFile(cfg.File)
	if err != nil {
		return r, err
	}
	if uid != 0 {
		r.Lack(dryrun.Missing{Subsystem: "user", Problem: fmt.Sprintf("user %d is not root: much of the host cannot be seen", uid),
			Fix: "run it as root; in its pod: privileged: true"})
	}
	vols, ts := n.volumes(f), n.targets(filepath.Join(cfg.StateDir, "nvmet-identity"), zap.NewNop())
	dryModules(&r, mods, f)
	dryFindings(&r, mods, look(ctx, mods, vols, ts))
	dryPools(ctx, &r, vols)
	if there, err := ts.list(ctx); err == nil {
		for _, t := range there {
			r.Exports = append(r.Exports, t.ID)
		}
	}
	dryState(&r, cfg)
	if mounted, err := configfs.Mounted(n.root); err == nil && !mounted {
		r.Step(atAgentStart, "mount", "configfs")
	}
	r.Step(atAgentStart, "listen", "on TCP "+cfg.Listen)
	if err := dryVolumes(ctx, &r, cfg, f); err != nil {
		r.Lack(dryrun.Missing{Subsystem: "state", Problem: "no example of a volume: " + err.Error(), Fix: "set TMPDIR to a directory that can be written"})
	}
	r.Ready = len(r.Missing) == 0
	return r, nil
}

// dryModules loads what the init container would, and misses what nobody would.
func dryModules(r *dryrun.Report, mods dryrun.Modules, f file) {
	need := slices.Clone(targetModules)
	for _, e := range f.Backends {
		if e.LVM != nil && !slices.Contains(need, "dm_mod") {
			need = append(need, "dm_mod")
		}
		if e.LVM != nil && e.LVM.ThinPool != "" && !slices.Contains(need, thinModule) {
			need = append(need, thinModule)
		}
	}
	for _, m := range need {
		switch mods.State(m) {
		case dryrun.Loaded:
		case dryrun.Loadable:
			r.Step(atPodStart, "load", m)
		default:
			r.Lack(dryrun.Missing{Subsystem: "modules", Problem: "the module " + m + " is not loaded", Fix: mods.Fix(m)})
		}
	}
}

// dryFindings misses what is unwell, except what is told apart: modules, and configfs, which
// the agent mounts.
func dryFindings(r *dryrun.Report, mods dryrun.Modules, found []finding) {
	modules := slices.ContainsFunc(targetModules, func(m string) bool { return mods.State(m) != dryrun.Loaded })
	mounted, err := configfs.Mounted(mods.Root)
	for _, f := range found {
		if refused := (*dryrun.Refused)(nil); errors.As(f.err, &refused) {
			r.Steps = append(r.Steps, dryrun.StepOf(atAgentStart, dryrun.Effect{Program: refused.Program}))
			continue
		}
		later := f.subsystem == subsystemNVMet && errors.Is(f.err, transport.ErrUnsupported) && (modules || err == nil && !mounted)
		if f.err != nil && !later && !errors.Is(f.err, dryrun.ErrModule) { // a pool's; its module is missed already
			r.Lack(dryrun.Missing{Subsystem: f.subsystem, Pool: f.pool, Problem: f.err.Error(), Fix: f.fix})
		}
	}
}

func dryPools(ctx context.Context, r *dryrun.Report, vols *volumes) {
	found := make([]*dryrun.PoolFound, len(vols.pools))
	vols.survey(ctx, func(ctx context.Context, i int, p *pool) {
		have, err := p.Pool(ctx)
		if err != nil {
			return
		}
		list, _ := p.List(ctx) // health has said what is wrong with the pool
		found[i] = &dryrun.PoolFound{
			Name: p.name, Backend: string(p.backend), Volumes: len(list),
			TotalBytes: have.Capacity.Total, AvailableBytes: have.Capacity.Available,
		}
	})
	for _, p := range found {
		if p != nil {
			r.Pools = append(r.Pools, *p)
		}
	}
}

// dryState makes the state directory's files as openState and the stores in it do.
func dryState(r *dryrun.Report, cfg Config) {
	st := &state{dir: cfg.StateDir}
	if err := st.of(false); err != nil {
		r.Lack(dryrun.Missing{Subsystem: "state", Problem: err.Error(), Fix: "set --state-dir to a directory of its own"})
	}
	if dir, err := writable(cfg.StateDir); err != nil {
		fix := "set --state-dir to a directory on a disk of this host"
		if errors.Is(err, unix.ENOSPC) {
			fix = "make room on its disk: without a fencing mark nothing is made, granted or revoked"
		}
		r.Lack(dryrun.Missing{Subsystem: "state", Problem: fmt.Sprintf("%s cannot be written: %v", dir, err), Fix: fix})
	}
	for _, dir := range []string{st.path(), st.path("generations"), st.path("nvmet-identity")} {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			r.Step(atAgentStart, "create", dir+"/")
		}
		for _, e := range entries {
			if durable.IsTemp(e.Name()) {
				r.Step(atAgentStart, "remove", filepath.Join(dir, e.Name()))
			}
		}
	}
	if _, err := os.Stat(st.path("lock")); errors.Is(err, fs.ErrNotExist) {
		r.Step(atAgentStart, "create", st.path("lock"))
	}
	if _, err := os.Stat(st.path("flushed")); err == nil {
		r.Step(atAgentStart, "remove", st.path("flushed"))
	}
}

// writable answers the directory that is there, or nearest above, and why it cannot be
// written.
func writable(dir string) (string, error) {
	for {
		err := unix.Access(dir, unix.R_OK|unix.W_OK|unix.X_OK)
		if up := filepath.Dir(dir); errors.Is(err, unix.ENOENT) && up != dir {
			dir = up
			continue
		}
		if err == nil {
			err = hasRoom(dir)
		}
		return dir, err
	}
}

// stateRoom is enough for the marks of some hundred volumes, each a block of its own.
const stateRoom = 1 << 20

// hasRoom is ENOSPC for a filesystem that says it is full; some say nothing (statfs(2)).
func hasRoom(dir string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return err
	}
	if disk.Blocks > 0 && disk.Bfree*uint64(disk.Bsize) < stateRoom || disk.Files > 0 && disk.Ffree == 0 {
		return unix.ENOSPC
	}
	return nil
}

// dryVolumes shows what one volume of each pool takes, by having it made on a simulated node.
func dryVolumes(ctx context.Context, r *dryrun.Report, cfg Config, f file) (err error) {
	dir, err := os.MkdirTemp("", "pillar-dry-run-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	st, err := openState(dir)
	if err != nil {
		return err
	}
	defer st.close()
	var when string
	m, err := dryrun.NewMachine(dir, f.pools(100<<30), func(e dryrun.Effect) { r.Steps = append(r.Steps, dryrun.StepOf(when, e)) })
	if err != nil {
		return err
	}
	s, err := simulatedNode(m).server(f, st, zap.NewNop())
	if err != nil {
		return err
	}
	if _, err := s.gate.Restore(ctx, nil); err != nil {
		return err
	}
	for i := range s.volumes.pools {
		p, first := &s.volumes.pools[i], len(r.Steps)
		when = "volume in " + p.name
		if err := s.example(ctx, p); err != nil && !errors.Is(err, storage.ErrUnsupported) {
			return fmt.Errorf("%s: %w", when, err)
		}
		marks, err := os.ReadDir(st.path("generations"))
		if err != nil {
			return err
		}
		for _, mark := range marks { // durable before every effect
			step := dryrun.Step{When: when, Does: "create", What: filepath.Join(cfg.StateDir, "generations", mark.Name())}
			if !slices.ContainsFunc(r.Steps, func(have dryrun.Step) bool { return have.What == step.What }) {
				r.Steps = slices.Insert(r.Steps, first, step)
			}
		}
	}
	return nil
}
