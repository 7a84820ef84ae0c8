package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"strings"
	"sync"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
)

// GuestSpec says what to boot.
type GuestSpec struct {
	Name    string // host name, console and tap name
	Address string // "10.66.0.11"; the network is 10.66.0.0/24, the gateway 10.66.0.1

	CPU      int // host CPU the guest is pinned to (modulo their number)
	MemoryMB int // 0 means 256 (QEMU: 512)

	// Var is the disk image for /var, kept over boots; empty means a file of this lab.
	// A missing file is created (8 GiB, sparse) and formatted by the guest.
	Var string
	// VarBacking is a template image: Var becomes copy-on-write over it. The template is
	// never written and may be shared by many guests.
	VarBacking string

	// Disks are spare disks: a size like "1GiB" (a new sparse file of this lab) or the path of an
	// image. They are /dev/ubdb, /dev/ubdc, ... in the guest, in this order.
	Disks []string

	// Share mounts host directories: guest path -> host directory. ShareRO does the same
	// read-only.
	Share, ShareRO map[string]string

	// Modules are loaded before the agent answers.
	Modules []string
	// ZFS gives the guest zfs(8), zpool(8) and their modules, as naming the module zfs does.
	// They come from an artifact that only `lab build zfs` makes: Boot is
	// artifacts.ErrMissing without it.
	ZFS   bool
	Hosts map[string]string // more lines of /etc/hosts: name -> address
	Env   map[string]string // environment of everything the agent runs
}

// ExitError is a script that ran in a guest and failed.
type ExitError struct {
	Guest  string
	Code   int
	Output string // standard output and error, in order
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: exit status %d: %s", e.Guest, e.Code, strings.TrimSpace(e.Output))
}

// ErrDown is an operation on a guest that does not run, or that was killed meanwhile.
var ErrDown = errors.New("guest is down")

// Guest is a booted machine.
type Guest struct {
	Spec GuestSpec
	// Disks are the device paths of the spare disks inside the guest, in Spec's order.
	Disks []string

	lab    *Lab
	dir    string // of its disks, console and boot files
	tap    string
	agent  *agent.Client
	images []string // host paths: /var first, then the spare disks

	mu     sync.Mutex
	cmd    *exec.Cmd
	booted int64           // where this boot begins on the console
	life   context.Context // ends when the process of this boot is gone
}

// Exec runs a bash script as root (set -e is not set) and returns its output, standard
// error included. A script that fails is an *ExitError; a guest that goes down meanwhile is
// ErrDown. The end of ctx kills the script.
func (g *Guest) Exec(ctx context.Context, script string) (string, error) {
	var out bytes.Buffer
	err := g.Command(ctx, &out, agent.Command{Script: script})
	var exit *ExitError
	if errors.As(err, &exit) {
		exit.Output = out.String()
	}
	return out.String(), err
}

// Run runs a program as root and streams its output to stdout until it ends. A program that
// fails is an *ExitError without output.
func (g *Guest) Run(ctx context.Context, stdout io.Writer, argv ...string) error {
	return g.Command(ctx, stdout, agent.Command{Argv: argv})
}

// Command is Run with directory and environment.
func (g *Guest) Command(ctx context.Context, stdout io.Writer, c agent.Command) error {
	var code int
	err := g.during(ctx, func(ctx context.Context) (err error) {
		code, err = g.agent.Run(ctx, c, stdout)
		return err
	})
	if err == nil && code != 0 {
		return &ExitError{Guest: g.Spec.Name, Code: code}
	}
	return err
}

// Put writes a file of the guest, making its directory. It replaces the file atomically.
func (g *Guest) Put(ctx context.Context, path string, data []byte, mode uint32) error {
	return g.during(ctx, func(ctx context.Context) error {
		return g.agent.Put(ctx, path, data, fs.FileMode(mode))
	})
}

// Get reads a file of the guest; a missing one is fs.ErrNotExist.
func (g *Guest) Get(ctx context.Context, path string) (data []byte, err error) {
	err = g.during(ctx, func(ctx context.Context) (err error) {
		data, err = g.agent.Get(ctx, path)
		return err
	})
	return data, err
}

// during runs act until it is done, ctx ends, the guest goes down or does not answer any more:
// ErrDown, ErrSilent. A dead guest resets no connection, so act would otherwise wait for ever.
func (g *Guest) during(ctx context.Context, act func(context.Context) error) error {
	g.mu.Lock()
	life, booted := g.life, g.booted // it may be booted again meanwhile
	g.mu.Unlock()
	if life == nil {
		return fmt.Errorf("%s: %w", g.Spec.Name, ErrDown)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer context.AfterFunc(life, func() { cancel(nil) })()
	var watching sync.WaitGroup
	watching.Go(func() { g.watch(ctx, cancel) })
	err := act(ctx)
	cause := context.Cause(ctx)
	cancel(nil)
	watching.Wait()
	switch {
	case err == nil:
		return nil
	case life.Err() != nil:
		return fmt.Errorf("%s: %w%s: %w", g.Spec.Name, ErrDown, g.lastWords(booted), err)
	}
	return g.explain(err, cause)
}

// Cut takes the guest's tap off the bridge: the guest sees a silent network, and the
// agent cannot be reached either. Heal ends it.
func (g *Guest) Cut() error {
	g.lab.printf("%s: network cut", g.Spec.Name)
	return plug(g.tap, false)
}

// Heal puts the guest back on the network.
func (g *Guest) Heal() error {
	g.lab.printf("%s: network healed", g.Spec.Name)
	return plug(g.tap, true)
}

// Alive reports whether the guest's process runs.
func (g *Guest) Alive() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.life != nil && g.life.Err() == nil
}
