package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// GuestSpec says what to boot.
type GuestSpec struct {
	Name    string // host name, console and tap name
	Address string // "10.66.0.11"; the network is 10.66.0.0/24, the gateway 10.66.0.1

	CPU      int // host CPU the guest is pinned to (modulo their number)
	MemoryMB int // 0 means 256

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

	Modules []string          // loaded before the agent answers
	Hosts   map[string]string // more lines of /etc/hosts: name -> address
	Env     map[string]string // environment of everything the agent runs
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

// Guest is a booted machine.
type Guest struct {
	Spec GuestSpec
	// Disks are the device paths of the spare disks inside the guest, in Spec's order.
	Disks []string
}

// Exec runs a bash script as root (set -e is not set) and returns its output, standard
// error included. A script that fails is an *ExitError.
func (g *Guest) Exec(ctx context.Context, script string) (string, error) {
	return "", errors.ErrUnsupported
}

// Run runs a program as root and streams its output to stdout until it ends. A program that
// fails is an *ExitError without output.
func (g *Guest) Run(ctx context.Context, stdout io.Writer, argv ...string) error {
	return errors.ErrUnsupported
}

// Put writes a file of the guest, making its directory. It replaces the file atomically.
func (g *Guest) Put(ctx context.Context, path string, data []byte, mode uint32) error {
	return errors.ErrUnsupported
}

// Get reads a file of the guest; a missing one is fs.ErrNotExist.
func (g *Guest) Get(ctx context.Context, path string) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

// Kill ends the guest as a power cut of its processes would: kill -9 of the whole group, then
// wait. What the guest had written to its disks stays in the host's page cache. A killed
// guest may Start again.
func (g *Guest) Kill() error { return errors.ErrUnsupported }

// Start boots a killed guest again, with the same disks, and returns when its agent answers.
func (g *Guest) Start(ctx context.Context) error { return errors.ErrUnsupported }

// Reboot syncs the guest's disks, then is Kill and Start.
func (g *Guest) Reboot(ctx context.Context) error { return errors.ErrUnsupported }

// Cut takes the guest off the network at its tap: the guest sees a silent network, and the
// agent cannot be reached either. Heal ends it.
func (g *Guest) Cut() error { return errors.ErrUnsupported }

// Heal puts the guest back on the network.
func (g *Guest) Heal() error { return errors.ErrUnsupported }

// Console returns the path of the console log of all boots of this guest.
func (g *Guest) Console() string { return "" }
