package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/zfs"
)

// poolWait bounds the look at all pools: one that hangs is unhealthy, not the answer late.
const poolWait = 10 * time.Second

// The names of subsystems that the health answer and metrics share (deploy.md 6, M5).
const (
	subsystemZFS   = "zfs"
	subsystemNVMet = "nvmet_configfs"
	subsystemPool  = "pool"
)

// finding is how one thing is that the agent stands on.
type finding struct {
	subsystem string
	pool      string // of subsystem pool
	err       error  // nil: well
	fix       string // what to do, if it is known
}

func (f finding) message() string {
	if f.err == nil || f.fix == "" {
		return errorText(f.err)
	}
	return f.err.Error() + "; fix: " + f.fix
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// look asks all that the agent stands on how it is: the ZFS module if there are ZFS pools,
// the protocols, the pools in the order of the configuration. Health and a dry run are both
// this look. A pool that hangs is unwell and makes no other so.
func look(ctx context.Context, mods dryrun.Modules, v *volumes, ts targets) []finding {
	var found []finding
	if slices.ContainsFunc(v.pools, func(p pool) bool { return p.backend == storage.ZFSZvol }) {
		found = append(found, lookAtModule(mods, "zfs"))
	}
	for _, t := range ts {
		found = append(found, finding{subsystem: t.Subsystem(), err: t.Available(ctx), fix: fixTarget(mods)})
	}
	slices.SortFunc(found, func(a, b finding) int { return strings.Compare(b.subsystem, a.subsystem) })
	pools := make([]finding, len(v.pools))
	v.survey(ctx, func(ctx context.Context, i int, p *pool) {
		err := p.health(ctx)
		fix := p.fix(err)
		if err != nil && fix == "" && p.thinPool != "" && mods.State(thinModule) != dryrun.Loaded {
			fix = mods.Fix(thinModule)
		}
		pools[i] = finding{subsystem: subsystemPool, pool: p.name, err: err, fix: fix}
	})
	return append(found, pools...)
}

// survey asks every pool at once and waits for the answers, at most poolWait.
func (v *volumes) survey(ctx context.Context, ask func(ctx context.Context, i int, p *pool)) {
	ctx, cancel := context.WithTimeout(ctx, poolWait)
	defer cancel()
	var asked sync.WaitGroup
	for i := range v.pools {
		asked.Go(func() { ask(ctx, i, &v.pools[i]) })
	}
	asked.Wait()
}

func lookAtModule(mods dryrun.Modules, module string) finding {
	f := finding{subsystem: module, fix: mods.Fix(module)}
	if mods.State(module) != dryrun.Loaded {
		f.err = fmt.Errorf("the module %s is not loaded", module)
	}
	return f
}

// thinModule is what thin pools stand on. LVM loads it by itself where it can.
const thinModule = "dm_thin_pool"

// targetModules are what NVMe/TCP exports stand on, in the order in which they load.
var targetModules = []string{"nvmet", "nvmet_tcp"}

func fixTarget(mods dryrun.Modules) string {
	for _, m := range targetModules {
		if mods.State(m) != dryrun.Loaded {
			return mods.Fix(m)
		}
	}
	return "see why configfs is not mounted, or cannot be read: systemctl status sys-kernel-config.mount"
}

// fix says what to do about a pool's error, or nothing if nobody knows.
func (p *pool) fix(err error) string {
	zvols := p.backend == storage.ZFSZvol
	switch {
	case err == nil:
		return ""
	case errors.Is(err, host.ErrNoProgram) && zvols:
		return "install ZFS's tools (Debian, Ubuntu: zfsutils-linux)"
	case errors.Is(err, host.ErrNoProgram):
		return "install LVM's tools (package lvm2)"
	case errors.Is(err, fs.ErrPermission):
		return "run the agent as root; in its pod: privileged: true"
	case zfs.NoParent(err):
		return fmt.Sprintf("zfs create -p %s/%s, or correct parentDataset: zfs list shows what there is", p.name, p.parent)
	case lvm.NoThinPool(err):
		return fmt.Sprintf("lvcreate --type thin-pool --size SIZE --name %s %s, or correct thinPool: lvs %s shows what there is", p.thinPool, p.name, p.name)
	case errors.Is(err, storage.ErrNotFound) && zvols:
		return fmt.Sprintf("zpool import %s, or correct pool: zpool list shows what there is; zpool create only for a new one", p.name)
	case errors.Is(err, storage.ErrNotFound):
		return fmt.Sprintf("correct volumeGroup, or vgrename: vgs shows what there is; are the disks of %[1]s there? Only for a new one: vgcreate %[1]s DEVICE", p.name)
	}
	return ""
}
