package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// machine is one kind of guest: how its process is started and what it calls its devices.
type machine interface {
	// command writes the guest's boot files and returns the process to start. Artifacts that
	// only this guest needs and that are not in the cache are artifacts.ErrMissing.
	command(ctx context.Context, g *Guest) (argv, env []string, err error)
	// device is the guest's path of its i-th disk; 0 is /var.
	device(i int) string
	memoryMB() int // default
	// zfs is what guests with ZFS boot; artifacts.ErrMissing if it is not in the cache.
	zfs(ctx context.Context) (artifacts.ZFS, error)
	// trace has the guest's kernel say on its console what it does, and says where the kernel
	// itself is, if that can be told.
	trace(g *Guest) (where string, err error)
	// troubles are parts of console lines that a healthy boot never prints.
	troubles() []string
}

// newMachine finds the artifacts of a kind, building them if the cache allows.
func newMachine(ctx context.Context, kind Kind, cache *artifacts.Cache) (machine, error) {
	switch kind {
	case UML:
		return newUML(ctx, cache)
	case QEMU:
		return newQEMU(ctx, cache)
	default:
		return nil, fmt.Errorf("unknown kind %q, want %s or %s", kind, UML, QEMU)
	}
}

// trees are a guest's root and module trees: the plain ones, or those with ZFS. Guests without
// it neither need nor use its artifact.
func trees(ctx context.Context, m machine, spec GuestSpec, root, modules string) (string, string, error) {
	if !spec.ZFS && !slices.Contains(spec.Modules, "zfs") {
		return root, modules, nil
	}
	zfs, err := m.zfs(ctx)
	return zfs.Root, zfs.Modules, err
}
