package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// Kind is a way to run a guest's kernel.
type Kind string

const (
	UML  Kind = "uml"  // user-mode Linux, Debian's package, one CPU, boots in 2-3 s
	QEMU Kind = "qemu" // QEMU without KVM, Debian's stock 6.12 kernel, two CPUs
)

// KindFromEnv returns the kind $PILLAR_LAB_KERNEL names; empty means UML.
func KindFromEnv() Kind {
	if k := os.Getenv("PILLAR_LAB_KERNEL"); k != "" {
		return Kind(k)
	}
	return UML
}

// Config says what a lab is. The zero value is a UML lab in a temporary directory.
type Config struct {
	Kind Kind
	// Dir holds disks, consoles and sockets of the guests; empty means a new directory of
	// this run, gone when `lab enter` ends (consoles of a failed run are kept).
	Dir string
	Log io.Writer // one line per boot, kill, cut; nil means os.Stderr
	// Patience is how long a guest may not answer while something runs in it; 0 means a
	// minute.
	Patience time.Duration
}

// Lab is a set of guests on one bridge.
type Lab struct {
	// HostDir is a directory of this lab, seen by every guest as /host (read-only there).
	// Files may be added at any time. CacheDir is seen as /cache. A file that a guest has read must
	// be replaced by rename, not written in place: guests cache contents.
	HostDir, CacheDir string

	cfg  Config
	kind machine

	mu     sync.Mutex
	guests []*Guest
}

// Open prepares a lab inside the namespaces of `lab enter`. It downloads nothing: artifacts
// that are not in the cache are artifacts.ErrMissing.
func Open(ctx context.Context, cfg Config) (*Lab, error) {
	run := os.Getenv(namespace.RunVar)
	if run == "" {
		return nil, errors.New("not inside a lab, use `lab enter -- COMMAND`")
	}
	dir, err := artifacts.Dir()
	if err != nil {
		return nil, err
	}
	l := &Lab{CacheDir: dir, cfg: cfg}
	if l.cfg.Kind == "" {
		l.cfg.Kind = KindFromEnv()
	}
	if l.cfg.Log == nil {
		l.cfg.Log = os.Stderr
	}
	if l.cfg.Dir == "" {
		if l.cfg.Dir, err = os.MkdirTemp(run, "guests-"); err != nil {
			return nil, err
		}
	}
	if l.cfg.Dir, err = filepath.Abs(l.cfg.Dir); err != nil {
		return nil, err
	}
	l.HostDir = filepath.Join(l.cfg.Dir, "host")
	if err := os.MkdirAll(l.HostDir, 0o755); err != nil {
		return nil, err
	}
	l.kind, err = newMachine(ctx, l.cfg.Kind, &artifacts.Cache{Dir: dir, Log: l.cfg.Log, Offline: true})
	if err != nil {
		return nil, fmt.Errorf("open a lab of kind %s: %w", l.cfg.Kind, err)
	}
	return l, nil
}

// Build makes all artifacts of a kind, installing the machine's packages that are missing. It is
// quick when all is cached. It runs outside of a lab, where there is a way to the mirrors.
func Build(ctx context.Context, kind Kind, log io.Writer) error {
	return build(ctx, kind, log, func(machine) error { return nil })
}

// BuildZFS is Build and what guests of the kind that load the module zfs need in addition. It
// takes minutes, so Build leaves it out and whoever wants ZFS asks for it once.
func BuildZFS(ctx context.Context, kind Kind, log io.Writer) error {
	return build(ctx, kind, log, func(m machine) error {
		_, err := m.zfs(ctx)
		return err
	})
}

func build(ctx context.Context, kind Kind, log io.Writer, also func(machine) error) error {
	packages := artifacts.HostPackages
	if kind == QEMU {
		packages = slices.Concat(packages, artifacts.QEMUPackages)
	}
	dir, err := artifacts.Dir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	cache := &artifacts.Cache{Dir: dir, Log: log}
	if err := cache.InstallHost(ctx, packages); err != nil {
		return err
	}
	m, err := newMachine(ctx, kind, cache)
	if err != nil {
		return err
	}
	if err := also(m); err != nil {
		return err
	}
	return cache.Prune("uml", "umlxstate", "qemu", "root", "guestinit", "zfs-root", "zfs", "zfs-qemu")
}

// HasZFS tells whether guests of this lab can have ZFS (GuestSpec.ZFS).
func (l *Lab) HasZFS(ctx context.Context) (bool, error) {
	_, err := l.kind.zfs(ctx)
	if errors.Is(err, artifacts.ErrMissing) {
		return false, nil
	}
	return err == nil, err
}

// Boot starts a guest and returns when its agent answers. The guest is killed by Close.
// A console that shows a missing disk or network fails the boot.
func (l *Lab) Boot(ctx context.Context, spec GuestSpec) (*Guest, error) {
	g, err := newGuest(l, spec)
	if err != nil {
		return nil, fmt.Errorf("boot %s: %w", spec.Name, err)
	}
	l.mu.Lock()
	l.guests = append(l.guests, g)
	l.mu.Unlock()
	if err := g.Start(ctx); err != nil {
		return nil, err
	}
	return g, nil
}

// Close kills every guest, unless the lab is kept (PILLAR_LAB_KEEP=1).
func (l *Lab) Close() error {
	if os.Getenv(namespace.KeepVar) == "1" {
		return nil
	}
	l.mu.Lock()
	guests := l.guests
	l.guests = nil
	l.mu.Unlock()
	var failed error
	for _, g := range guests {
		failed = errors.Join(failed, g.Kill(), removeTap(g.tap))
	}
	return failed
}

func (l *Lab) printf(format string, args ...any) {
	fmt.Fprintf(l.cfg.Log, "lab: "+format+"\n", args...)
}
