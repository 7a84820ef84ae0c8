package lab

import (
	"context"
	"errors"
	"io"
)

// Kind is a way to run a guest's kernel.
type Kind string

const (
	UML  Kind = "uml"  // user-mode Linux, Debian's package, one CPU, boots in 2-3 s
	QEMU Kind = "qemu" // QEMU without KVM, Debian's stock 6.12 kernel, two CPUs
)

// Config says what a lab is. The zero value is a UML lab in a temporary directory.
type Config struct {
	Kind Kind
	// Dir holds disks, consoles and sockets of the guests; empty means a new directory
	// below the cache, removed by Close when no guest failed.
	Dir string
	Log io.Writer // one line per boot, kill, cut; nil means os.Stderr
}

// Lab is a set of guests on one bridge.
type Lab struct {
	// HostDir is a directory of this lab, seen by every guest as /host (read-only there).
	// Files may be added at any time. CacheDir is seen as /cache.
	HostDir, CacheDir string

	cfg Config
}

// Open prepares a lab inside the namespaces of `lab enter`. It builds nothing: artifacts
// that are not in the cache are an error that says to run `lab build`.
func Open(ctx context.Context, cfg Config) (*Lab, error) {
	return nil, errors.ErrUnsupported
}

// Boot starts a guest and returns when its agent answers. The guest is killed by Close.
// A console that shows a missing disk or network fails the boot.
func (l *Lab) Boot(ctx context.Context, spec GuestSpec) (*Guest, error) {
	return nil, errors.ErrUnsupported
}

// Close kills every guest and removes the lab's own directory, unless a guest failed or
// PILLAR_LAB_KEEP=1: then it prints where the consoles are.
func (l *Lab) Close() error { return nil }
