package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// uml runs guests as user-mode Linux: one ordinary program per guest.
type uml struct {
	cache      *artifacts.Cache
	kernel     artifacts.Kernel
	root, init string
}

func newUML(ctx context.Context, cache *artifacts.Cache) (*uml, error) {
	kernel, err := cache.UML(ctx)
	if err != nil {
		return nil, err
	}
	root, err := cache.Root(ctx)
	if err != nil {
		return nil, err
	}
	init, err := cache.GuestInit(ctx, ".")
	if err != nil {
		return nil, err
	}
	return &uml{cache: cache, kernel: kernel, root: root, init: init}, nil
}

func (u *uml) memoryMB() int       { return 256 }
func (u *uml) device(i int) string { return "/dev/ubd" + string(rune('a'+i)) }

// troubles: a disk another guest has, and a tap another guest has. The guest would boot
// without them.
func (u *uml) troubles() []string {
	return []string{"Failed to lock", "Can't open", "user_init_tap: init failed", "Kernel panic"}
}

func (u *uml) zfs(ctx context.Context) (artifacts.ZFS, error) { return u.cache.UMLZFS(ctx) }

func (u *uml) command(ctx context.Context, g *Guest) (argv, env []string, err error) {
	root, modules, err := trees(ctx, u, g.Spec, u.root, u.kernel.Modules)
	if err != nil {
		return nil, nil, err
	}
	config := g.bootConfig()
	config.Interface = "vec0"
	config.Root = agent.Share{Type: "hostfs", Source: root, ReadOnly: true}
	config.Modules = agent.Share{Type: "hostfs", Source: modules, ReadOnly: true}
	config.Var = u.device(0)
	boot := filepath.Join(g.dir, "boot")
	if err := writeBootFiles(boot, u.init, config); err != nil {
		return nil, nil, err
	}
	argv = []string{
		// A guest and its traced programs hand over to each other at every system call; on two
		// CPUs that is five to eight times slower.
		"taskset", "-c", strconv.Itoa(g.Spec.CPU % runtime.NumCPU()),
		u.kernel.Image, fmt.Sprintf("mem=%dM", g.Spec.MemoryMB),
		"root=/dev/root", "rootfstype=hostfs", "rootflags=" + boot, "ro", "init=/init",
		"con=null", "con0=null,fd:1", "console=tty0", "quiet", "panic=1",
		"cryptomgr.notests", // saves a third of the boot
		"sysrq_always_enabled",
		"uml_dir=" + g.lab.umlDir(), "umid=" + g.Spec.Name,
		// Without gro=1 large segments are dropped and bulk TCP stalls.
		fmt.Sprintf("vec0:transport=tap,ifname=%s,depth=128,gro=1,mac=%s", g.tap, macAddress(g.Spec.Address)),
	}
	for i, image := range g.images {
		if i == 0 && g.Spec.VarBacking != "" {
			image += "," + g.Spec.VarBacking
		}
		// t: no discard. Each 32 KiB of it would be a hole punched into the image.
		argv = append(argv, fmt.Sprintf("ubd%dt=%s", i, image))
	}
	return argv, append(memoryEnv(), "LD_PRELOAD="+u.kernel.Preload), nil
}

// umlDir holds a directory for each guest, with its management console.
func (l *Lab) umlDir() string { return filepath.Join(l.cfg.Dir, "uml") }

// memoryEnv puts the guest's memory, an unlinked file in TMPDIR, on a tmpfs.
func memoryEnv() []string {
	if _, err := os.Stat("/dev/shm"); err != nil {
		return nil
	}
	return []string{"TMPDIR=/dev/shm"}
}
