package dryrun

import (
	"context"
	"fmt"
	"slices"

	"github.com/pillar-csi/pillar/storage/host"
)

// Reader is a host.Runner that runs what only reads, and refuses anything else. The LVM
// tools read without taking a lock and without keeping a cache, both of which are files.
type Reader struct {
	Runner host.Runner
}

// ReaderEnv is added to the environment of what a Reader runs: without it zfs(8) and
// zpool(8) load the module if it is not there (libzfs_load_module).
var ReaderEnv = []string{"ZFS_MODULE_LOADING=NO"}

// Run implements host.Runner.
func (r Reader) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	argv := append([]string{name}, args...)
	if !reads(argv) {
		return nil, fmt.Errorf("a dry run does not run %s", quoted(argv))
	}
	if name != "zfs" && name != "zpool" {
		args = append([]string{"--nolocking"}, args...)
		if i := slices.Index(args, "--config"); i >= 0 {
			args[i+1] += ` devices{hints="none"}`
		}
	}
	return r.Runner.Run(ctx, name, args...)
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
