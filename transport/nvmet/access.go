package nvmet

import (
	"context"
	"fmt"
	"slices"

	"github.com/pillar-csi/pillar/transport"
)

// Allow admits one host to the export of volume, whose device the caller recomputed. No
// export is transport.ErrNotFound, one of another device transport.ErrPrecondition. An
// export without an ACL admits everyone already.
func (t *Target) Allow(ctx context.Context, volume, device, hostNQN string) error {
	err := t.change(volume, hostNQN, func(s *subsystem) error {
		if s == nil || s.device == "" {
			return fmt.Errorf("%w: no export", transport.ErrNotFound)
		}
		if ours, err := s.backs(device); err != nil {
			return err
		} else if !ours {
			return s.otherDevice(device)
		}
		if s.anyHost {
			return nil
		}
		if _, err := t.identity(volume, s.dir.Base(), s); err != nil { // from here on a host may know it
			return err
		}
		return t.allow(ctx, s, hostNQN)
	})
	if err != nil {
		return fmt.Errorf("allow %s on %s: %w", hostNQN, volume, err)
	}
	return nil
}

// Deny withdraws one host from the export of volume and returns when no session of it is
// left and none of its I/O in flight (block.md D-29). A host that was not admitted, no
// export, an export without an ACL or of another device are success without an effect.
//
// The kernel offers no way to end one host's sessions, and none to see when the last
// command of a session that was cut has been served. So the subsystem is taken out of the
// port, which cuts all its sessions, and built anew: whatever still runs on behalf of an
// old session holds the old subsystem, which has no namespace any more. The other hosts
// reconnect to the new one, same in name and identity. Disabling the namespace while they
// are connected would not do: their I/O fails, and they are told and may drop their device
// (seen on Linux 6.1 and 6.12).
//
// The host's link goes last, so that a Deny that broke off is recognised and repeated. A
// failure to build anew is returned; the next export of the volume completes it.
func (t *Target) Deny(ctx context.Context, volume, device, hostNQN string, hold transport.Hold) error {
	err := t.change(volume, hostNQN, func(s *subsystem) error {
		if s == nil || s.anyHost || !slices.Contains(s.hosts, hostNQN) {
			return nil
		}
		if ours, err := s.backs(device); err != nil || !ours {
			return err
		}
		return t.deny(ctx, s, volume, hostNQN, hold)
	})
	if err != nil {
		return fmt.Errorf("deny %s on %s: %w", hostNQN, volume, err)
	}
	return nil
}

func (t *Target) deny(ctx context.Context, s *subsystem, volume, hostNQN string, hold transport.Hold) error {
	p := plan{
		nqn:   s.dir.Base(),
		hosts: slices.DeleteFunc(slices.Clone(s.hosts), func(h string) bool { return h == hostNQN }),
		Export: transport.Export{
			Volume: volume, DevicePath: s.device, ACL: true, Disabled: !s.enabled,
		},
	}
	id, err := t.identity(volume, p.nqn, s)
	if err != nil {
		return err
	}
	if s.device == "" { // a leftover; the next export makes all of it
		_, err := t.takeDown(ctx, s, hostNQN)
		return err
	}
	return t.rebuild(ctx, s, p, id, hostNQN, hold)
}

// rebuild takes a subsystem down, which ends every session, and makes it anew as planned, in
// the ports where it was: those who are still admitted reconnect, and find its ports closed
// until it is there again. Of the hosts lastHost is the last to go.
func (t *Target) rebuild(ctx context.Context, s *subsystem, p plan, id Identity, lastHost string, hold transport.Hold) error {
	if len(p.hosts) > 0 || !p.ACL {
		ports, err := t.linkedPorts(p.nqn)
		if err != nil {
			return err
		}
		for _, at := range ports {
			defer t.Quiet(at.portal)()
		}
	}
	ports, err := t.takeDown(ctx, s, lastHost)
	if err != nil {
		return err
	}
	fresh, err := t.configure(ctx, p, id, nil)
	if err != nil {
		return err
	}
	if err := fresh.serve(ctx, p, hold); err != nil {
		return err
	}
	t.ports.Lock()
	defer t.ports.Unlock()
	for _, p := range ports {
		if err := p.dir.Sub("subsystems").Link(ctx, fresh.dir); err != nil {
			return err
		}
	}
	return nil
}

// change reads the volume's subsystem and acts on it; hostNQN is checked before it can
// become part of a path.
func (t *Target) change(volume, hostNQN string, act func(*subsystem) error) error {
	if _, err := transport.ParseNQN(hostNQN); err != nil {
		return err
	}
	nqn, err := NQN(volume)
	if err != nil {
		return err
	}
	defer t.lock(nqn)()
	s, err := t.subsystem(nqn)
	if err != nil {
		return err
	}
	return act(s)
}
