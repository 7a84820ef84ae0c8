package dryrun

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/pillar-csi/pillar/storage/host"
)

// Reader is a host.Runner that runs what only reads, and refuses anything else. The LVM
// tools read without taking a lock and without keeping a cache, both of which are files.
type Reader struct {
	Runner  host.Runner
	Modules Modules
}

// ErrModule is a program that would load a kernel module: opening its device does, whatever
// the tool itself is told (seen with /dev/zfs and ZFS_MODULE_LOADING=NO).
var ErrModule = errors.New("a dry run loads no module")

// Refused is a program that would change something.
type Refused struct{ Program []string }

func (r *Refused) Error() string { return "a dry run does not run " + quoted(r.Program) }

// Run implements host.Runner.
func (r Reader) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	argv := append([]string{name}, args...)
	zfs := name == "zfs" || name == "zpool"
	switch {
	case !reads(argv):
		return nil, &Refused{argv}
	case zfs && r.Modules.State("zfs") != Loaded:
		return nil, fmt.Errorf("run %s: %w: zfs", name, ErrModule)
	case !zfs:
		args = r.lvm(args)
	}
	return r.Runner.Run(ctx, name, args...)
}

// lvm gives an LVM tool the options with which it leaves nothing behind (lvm(8)).
func (r Reader) lvm(args []string) []string {
	args = append([]string{"--nolocking"}, args...)
	if r.Modules.State("dm_mod") != Loaded {
		args = append([]string{"--driverloaded", "n"}, args...)
	}
	if i := slices.Index(args, "--config"); i >= 0 {
		args[i+1] += ` devices{hints="none"}`
	}
	return args
}

// reads tells whether a program changes nothing.
func reads(argv []string) bool {
	switch argv[0] {
	case "vgs", "lvs", "pvs":
		return true
	case "zfs", "zpool":
		return len(argv) > 1 && slices.Contains([]string{"list", "get", "status"}, argv[1])
	}
	return false
}
