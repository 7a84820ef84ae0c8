// Package nvmf is the NVMe/TCP host: it connects to a subsystem, finds its namespace, and
// disconnects until the kernel has really let go. No program is run. What it touches:
//
//	/dev/nvme-fabrics                        one write connects, a read answers the instance
//	/sys/class/nvme/nvme<I>/                 a controller: one connection
//	├── state, address, subsysnqn, hostnqn
//	├── delete_controller, rescan_controller
//	├── nvme<I>c<C>n1/                       a path, with native multipath; never used as a device
//	└── nvme<S>n1/                           the device itself, without native multipath
//	/sys/class/nvme-subsystem/nvme-subsys<S>/
//	├── subsysnqn
//	└── nvme<S>n1/                           the head, with native multipath: the device
//	/dev/nvme<S>n1                           made from sysfs's numbers if missing
//
// Names are given out by the kernel in order of arrival and say nothing about a volume: a
// device is found by its subsystem's NQN, each time anew.
package nvmf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/transport"
)

// Config is who this host is. Both values always go together: current kernels refuse a
// known host NQN with another host ID.
type Config struct {
	HostNQN string
	HostID  string // a UUID
}

// Target is the subsystem to connect to. Nil options are left to the kernel.
type Target struct {
	NQN            string
	Portal         transport.Portal
	QueueSize      *int
	CtrlLossTmo    *int // seconds; 0 never reconnects, the kernel's own value is 600
	ReconnectDelay *int // seconds; the kernel refuses 0
	HdrDigest      bool
	DataDigest     bool
}

// Device is the block device of a subsystem's namespace 1.
type Device struct {
	Path         string
	UUID         string // of the namespace, with dashes; may be pinned, so never derived here
	Major, Minor uint32
	Created      bool // the controller was made by this call
}

// Host is this machine as an NVMe host. Calls for different subsystems may overlap; the
// caller serialises those for one.
type Host struct {
	root host.Root
	cfg  Config
	sys  fs.FS // sys below root
	// connect hands one option string to /dev/nvme-fabrics.
	connect func(options string) error
}

// New answers the host whose sysfs and devices lie below root.
func New(root host.Root, cfg Config) *Host {
	h := &Host{root: root, cfg: cfg, sys: os.DirFS(root.Path("sys"))}
	h.connect = h.fabrics
	return h
}

// Available says whether this kernel can connect now. What is missing is a
// transport.ErrUnsupported that names it.
func (h *Host) Available() error {
	for _, need := range [][2]string{{"dev/nvme-fabrics", "nvme_fabrics"}, {"sys/module/nvme_tcp", "nvme_tcp"}} {
		_, err := os.Stat(h.root.Path(need[0]))
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: the module %s is not loaded", transport.ErrUnsupported, need[1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// wait repeats done, at first quickly, later every 500 ms, until it answers true, an error,
// or ctx ends. The last case answers ctx's error.
func wait(ctx context.Context, done func() (bool, error)) error {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// await runs f and answers when it is done or when ctx ends, whichever is first: a write
// to sysfs, a connect and a first read of a device can all hang as long as the network.
func await(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
