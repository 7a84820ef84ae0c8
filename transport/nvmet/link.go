package nvmet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
)

// linking is a plan on its way into its port.
type linking struct {
	plan
	port configfs.Dir // its subsystems
	err  error
}

// Link makes prepared volumes reachable, and answers for each why it is not: it finds or makes
// the port of the portal and links the subsystem into it. A volume that was not prepared is
// transport.ErrNotFound; a live port that cannot serve the request is
// transport.ErrPrecondition. A link into another port stays: hosts may be connected there.
//
// The first link starts the listener. Whoever connects before the last one and asks for a
// volume that is not linked yet is told not to come back (block.md P-13). So everything is
// checked before, read back after, and in between there are only links, behind Config.Quiet.
func (t *Target) Link(ctx context.Context, exports []transport.Export) []error {
	links := make([]*linking, len(exports))
	for i, e := range exports {
		p, err := parse(e)
		links[i] = &linking{plan: p, err: err}
	}
	defer t.lockAll(links)()
	for _, l := range links {
		if l.err == nil {
			l.err = t.subsystemOf(l).linkable(l.plan)
		}
	}
	t.ports.Lock()
	defer t.ports.Unlock()
	for _, same := range byAsks(links) {
		defer t.linkSame(ctx, same, len(links) > 1)()
	}
	errs := make([]error, len(links))
	for i, l := range links {
		if l.err == nil {
			l.err = l.port.Confirm(l.nqn)
		}
		if l.err != nil {
			errs[i] = fmt.Errorf("export %s: %w", l.Volume, l.err)
		}
	}
	return errs
}

// lockAll locks the subsystems of all links, in order.
func (t *Target) lockAll(links []*linking) (unlock func()) {
	var names []string
	for _, l := range links {
		if l.err == nil {
			names = append(names, l.nqn)
		}
	}
	slices.Sort(names)
	var unlocks []func()
	for _, nqn := range slices.Compact(names) {
		unlocks = append(unlocks, t.lock(nqn))
	}
	return func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}
}

func (t *Target) subsystemOf(l *linking) *subsystem {
	return &subsystem{dir: t.subsystemDir(l.nqn), number: t.number}
}

// byAsks sorts out the links that got this far by what they want of their port: one look at it
// answers for all of a kind.
func byAsks(links []*linking) (all [][]*linking) {
	at := map[asks]int{}
	for _, l := range links {
		if l.err != nil {
			continue
		}
		i, ok := at[l.asks()]
		if !ok {
			i = len(all)
			at[l.asks()] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], l)
	}
	return all
}

// linkSame links those that want the same of their port. An idle one is quiet from before its
// first link until end, if more are to follow. The caller holds t.ports.
func (t *Target) linkSame(ctx context.Context, links []*linking, more bool) (end func()) {
	port, err := t.portOf(ctx, links[0].plan)
	subsystems, end := port.Sub("subsystems"), func() {}
	if err == nil && more {
		end, err = t.quiet(subsystems, links[0].plan)
	}
	for _, l := range links {
		if l.port, l.err = subsystems, err; l.err == nil {
			l.err = l.listens(subsystems.Symlink(ctx, t.subsystemDir(l.nqn)))
		}
		if l.err == nil {
			t.last[l.asks()] = lastLink{port: port, nqn: l.nqn}
		}
	}
	return end
}

// linkable holds a subsystem to what Prepare made of it: this device, and enabled, which is
// its last step. It reads no more than that: links are made by the hundred.
func (s *subsystem) linkable(p plan) (err error) {
	s.device, err = s.ns().Read("device_path")
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: subsystem %s has no namespace", transport.ErrNotFound, p.nqn)
	}
	if err != nil {
		return err
	}
	ours, err := s.backs(p.DevicePath)
	if err == nil && !ours {
		err = s.otherDevice(p.DevicePath)
	}
	if err != nil || p.Disabled {
		return err
	}
	enabled, err := s.ns().Read("enable")
	if err == nil && enabled != "1" {
		err = fmt.Errorf("%w: namespace 1 of subsystem %s is not enabled", transport.ErrNotFound, p.nqn)
	}
	return err
}
