package nvmf

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/pillar-csi/pillar/transport"
	"golang.org/x/sys/unix"
)

const (
	// deviceWait is how long a live controller may take to show its namespace (U-29).
	deviceWait = 30 * time.Second
	// rescanAfter is when the controller is asked once to scan again: the notice of a
	// namespace can get lost.
	rescanAfter = 2 * time.Second
	// undoWait bounds the disconnect of a controller that Attach made in vain.
	undoWait = 10 * time.Second
)

// Attach connects to the subsystem unless this host is connected already, and answers the
// device of its namespace 1 once it can be opened. A controller on its way up or down is
// waited for; a live one is used with the options it has.
//
// transport.ErrInvalid for a value no kernel takes, transport.ErrPrecondition when NVMe/TCP
// is not loaded or a live controller has another portal. After a failure the controller
// this call made is disconnected again; where that failed too, the answer is still Created.
func (h *Host) Attach(ctx context.Context, t Target) (Device, error) {
	dev, err := h.attach(ctx, t)
	if err != nil {
		return Device{Created: dev.Created}, fmt.Errorf("attach %s at %s: %w", t.NQN, t.Portal, err)
	}
	return dev, nil
}

func (h *Host) attach(ctx context.Context, t Target) (Device, error) {
	line, err := options(t, h.cfg)
	if err != nil {
		return Device{}, err
	}
	var dev Device
	created, err := h.reach(ctx, t, line)
	if err == nil {
		dev, err = h.awaitDevice(ctx, t.NQN)
	}
	if err != nil && created {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
		defer cancel()
		left := h.Detach(undo, t.NQN, t.Portal)
		created, err = left != nil, errors.Join(err, left)
	}
	dev.Created = created
	return dev, err
}

// step is what to do next about a subsystem's controllers.
type step int

const (
	doConnect step = iota
	doWait
	doUse
)

// decide looks at this host's controllers of one subsystem (block.md B-333).
func decide(own []controller, portal transport.Portal) (step, error) {
	next := doConnect
	for _, c := range own {
		if c.state == "live" {
			if c.portal != portal {
				return 0, fmt.Errorf("%w: %s is connected to this subsystem at %s", transport.ErrPrecondition, c.name, c.portal)
			}
			return doUse, nil
		}
		next = doWait // on its way up, or on its way out
	}
	return next, nil
}

// reach returns when a live controller is there, and says whether this call made it, or
// may have: a connect that outlasts ctx can still succeed.
func (h *Host) reach(ctx context.Context, t Target, line string) (created bool, err error) {
	portal := canonical(t.Portal)
	var seen []controller
	err = wait(ctx, func() (bool, error) {
		if seen, err = h.own(t.NQN); err != nil {
			return false, err
		}
		next, err := decide(seen, portal)
		if err != nil || next != doConnect {
			return next == doUse, err
		}
		err = await(ctx, func() error { return h.connect(line) })
		created = created || err == nil || ctx.Err() != nil
		if errors.Is(err, unix.EALREADY) { // made meanwhile, and not by us
			err = nil
		}
		return false, err
	})
	if err != nil && ctx.Err() != nil {
		return created, fmt.Errorf("wait for a live controller, have %s: %w", describe(seen), err)
	}
	return created, err
}

// own answers this host's controllers of one subsystem.
func (h *Host) own(nqn string) ([]controller, error) {
	all, err := controllers(h.sys)
	if err != nil {
		return nil, err
	}
	var own []controller
	for _, c := range all {
		if c.nqn == nqn && c.hostNQN == h.cfg.HostNQN {
			own = append(own, c)
		}
	}
	return own, nil
}

func describe(cs []controller) string {
	if len(cs) == 0 {
		return "none"
	}
	var all []string
	for _, c := range cs {
		all = append(all, c.name+" "+c.state)
	}
	return strings.Join(all, ", ")
}

// Device answers the device of a connected subsystem without connecting. None is
// transport.ErrNotFound. Call it again after opening the device and before writing to it:
// the answer must be the same, or the numbers were given to another.
func (h *Host) Device(ctx context.Context, nqn string) (Device, error) {
	if err := ctx.Err(); err != nil {
		return Device{}, err
	}
	ns, err := findNamespace(h.sys, nqn, h.cfg.HostNQN)
	if err != nil {
		return Device{}, fmt.Errorf("device of %s: %w", nqn, err)
	}
	if ns == nil {
		return Device{}, fmt.Errorf("device of %s: %w", nqn, transport.ErrNotFound)
	}
	return ns.device(h), nil
}

func (ns *namespace) device(h *Host) Device {
	return Device{Path: h.root.Path("dev", ns.name), UUID: ns.uuid, Major: ns.major, Minor: ns.minor}
}

// awaitDevice waits for the namespace, makes its node and proves by opening it that node
// and namespace belong together.
func (h *Host) awaitDevice(ctx context.Context, nqn string) (Device, error) {
	waiting, cancel := context.WithTimeout(ctx, deviceWait)
	defer cancel()
	var ns *namespace
	start, rescanned := time.Now(), false
	err := wait(waiting, func() (done bool, err error) {
		if ns, err = findNamespace(h.sys, nqn, h.cfg.HostNQN); ns != nil || err != nil {
			return true, err
		}
		if !rescanned && time.Since(start) > rescanAfter {
			rescanned = true
			return false, h.rescan(waiting, nqn)
		}
		return false, nil
	})
	if err != nil {
		return Device{}, fmt.Errorf("wait for namespace 1: %w", err)
	}
	dev := ns.device(h)
	if err := h.node(dev.Path, unix.S_IFBLK, dev.Major, dev.Minor); err != nil {
		return Device{}, err
	}
	if err := await(waiting, func() error { return h.confirm(dev) }); err != nil {
		return Device{}, fmt.Errorf("open %s: %w", dev.Path, err)
	}
	again, err := h.Device(ctx, nqn)
	if err == nil && again != dev {
		err = fmt.Errorf("namespace 1 was %+v and is %+v", dev, again)
	}
	return dev, err
}

func (h *Host) rescan(ctx context.Context, nqn string) error {
	own, err := h.own(nqn)
	if err != nil {
		return err
	}
	for _, c := range own {
		dir := path.Join("class/nvme", c.name)
		_, err := whole(h.sys, dir, func() (none struct{}, err error) {
			return none, h.write(ctx, path.Join(dir, "rescan_controller"), "1")
		})
		if err != nil {
			return err
		}
	}
	return nil
}
