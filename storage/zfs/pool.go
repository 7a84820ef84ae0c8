// Package zfs makes volumes as zvols below one dataset of a pool, by zfs(8) and zpool(8).
//
//	<pool>[/<parentDataset>]     exists before us; never created, imported or destroyed here
//	  <name>                     one zvol per volume
//	    pillar-csi.bhyoo.com:volume = <UID>    the lifecycle it was made for; no other touches it
//	  "unfinished <hash>"        a zvol until its properties are on disk; then renamed, then volmode
//	/dev/zdN                     its device, by what the kernel says of it (BLKZNAME)
//	/dev/zvol/<dataset>          a link to it; made here where no udev does, proved before use
//	/proc/spl/kstat/zfs/<pool>/state   tells a suspended pool without waiting for it
//
// zfs(8) says "dataset does not exist" also of a volume whose pool is not imported. So a
// volume is absent only if its parent is there in the same breath.
package zfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// commandTimeout bounds one run of a tool. Each waits for a transaction group or two, which
// a busy pool of slow disks closes every few seconds; one that takes longer waits for a
// disk that does not answer, and dies with everything it started.
const commandTimeout = 30 * time.Second

// commands is how many tools run at once on one pool. They meet in the same transaction
// group, so some together are quicker than one by one.
const commands = 8

// suspended is the state of a pool that has lost its disks: all I/O waits (failmode=wait).
const suspended = "SUSPENDED"

// Config names the place of the volumes.
type Config struct {
	Pool          string
	ParentDataset string // below the pool; empty: the pool's root

	// Ask opens a device and asks what it is; nil asks the kernel.
	Ask func(path string) (Identity, error)
}

// Pool is the zvols below one dataset of a pool, as a storage.Backend.
type Pool struct {
	run   host.Runner
	root  host.Root
	cfg   Config
	nodes *nodes
}

var _ storage.Backend = (*Pool)(nil)

// New answers the zvols of cfg. Nothing is run or checked yet.
func New(run host.Runner, root host.Root, cfg Config) *Pool {
	return &Pool{run: host.NewFew(run, commands, commandTimeout), root: root, cfg: cfg, nodes: newNodes(root, cfg.Ask)}
}

// parent is the dataset that volumes are made in.
func (c Config) parent() string {
	if c.ParentDataset == "" {
		return c.Pool
	}
	return c.Pool + "/" + c.ParentDataset
}

func (c Config) dataset(name string) string { return c.parent() + "/" + name }

// tool runs zfs or zpool. Its error is classified. A suspended pool is storage.ErrPrecondition
// at once: what waits for its disks cannot be killed, and would stay.
func (p *Pool) tool(ctx context.Context, tool string, args ...string) ([]byte, error) {
	state, err := p.state()
	if err != nil {
		return nil, err
	}
	if state == suspended {
		return nil, p.unwell(state)
	}
	out, err := p.run.Run(ctx, tool, args...)
	return out, classify(err)
}

// state is the pool's, or empty if the kernel shows none: not imported, or no module. It
// takes no lock that a hanging pool could hold (module/zfs/spa_stats.c).
func (p *Pool) state() (string, error) {
	data, err := os.ReadFile(p.root.Path("proc/spl/kstat/zfs", p.cfg.Pool, "state"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("state of pool %s: %w", p.cfg.Pool, err)
	}
	return strings.TrimSpace(string(data)), nil
}

func (p *Pool) unwell(state string) error {
	return fmt.Errorf("%w: pool %s is %s: see zpool status %s", storage.ErrPrecondition, p.cfg.Pool, state, p.cfg.Pool)
}

// Pool implements storage.Backend: what volumes and snapshots below the parent dataset use
// and reserve, and what is available there, quotas and reservations counted (B-227).
func (p *Pool) Pool(ctx context.Context) (storage.Pool, error) {
	parent, err := p.place(ctx)
	if err != nil {
		return storage.Pool{}, fmt.Errorf("ZFS pool %s: %w", p.cfg.parent(), err)
	}
	return storage.Pool{
		Name:     p.cfg.Pool,
		Type:     "zfs",
		Capacity: storage.Capacity{Total: parent.used + parent.available, Available: parent.available},
		Parent:   p.cfg.ParentDataset,
	}, nil
}

// place finds the parent dataset. storage.ErrNotFound: zpool says there is no such pool.
func (p *Pool) place(ctx context.Context) (report, error) {
	found, err := p.list(ctx)
	if errors.Is(err, errNoParent) {
		if _, health := p.health(ctx); health != nil {
			return report{}, health
		}
	}
	return found[p.cfg.parent()], err
}

// NoParent tells whether an error says that the pool is there and the parent dataset is not.
func NoParent(err error) bool { return errors.Is(err, errNoParent) }

// Health answers nil for a pool that is ONLINE and has room. Any other state is
// storage.ErrPrecondition, also one in which volumes can be used: a DEGRADED pool has lost a
// disk. Without room writes fail also in volumes that reserve theirs: ZFS takes what is being
// written for 24 times its size, and what of that is beyond the reservation needs room
// (dsl_dir_tempreserve_impl in module/zfs/dsl_dir.c).
func (p *Pool) Health(ctx context.Context) error {
	pool, err := p.Pool(ctx)
	if err != nil {
		return err
	}
	state, err := p.health(ctx)
	switch {
	case err != nil:
		return err
	case state != "ONLINE":
		return p.unwell(state)
	case pool.Capacity.Available == 0:
		return fmt.Errorf("%w: %s has no room left, writes fail in all of its volumes: add a disk, raise its quota or delete something; zfs list -o space -r %s shows what takes it", storage.ErrPrecondition, p.cfg.parent(), p.cfg.Pool)
	}
	return nil
}

// health is the pool's state as zpool shows it. storage.ErrNotFound: it says there is none.
func (p *Pool) health(ctx context.Context) (string, error) {
	out, err := p.tool(ctx, "zpool", "list", "-H", "-o", "health", p.cfg.Pool)
	if errors.Is(err, errNoPool) {
		err = fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	}
	return strings.TrimSpace(string(out)), err
}
