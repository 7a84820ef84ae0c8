package nvmet

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/transport"
)

// Unexport removes the export of volume, whose device the caller recomputed, and its
// pinned identity. Port and host directories stay, others may use them. No export, or one
// of another device, is success. An object that stays busy is transport.ErrPrecondition.
func (t *Target) Unexport(ctx context.Context, volume, device string) error {
	if err := t.unexport(ctx, volume, device); err != nil {
		return fmt.Errorf("unexport %s: %w", volume, err)
	}
	return nil
}

func (t *Target) unexport(ctx context.Context, volume, device string) error {
	nqn, err := NQN(volume)
	if err != nil {
		return err
	}
	defer t.lock(nqn)()
	s, err := t.subsystem(nqn)
	if err != nil {
		return err
	}
	if s != nil {
		ours, err := s.backs(device)
		if err != nil {
			return err
		}
		if ours {
			if _, err := t.takeDown(ctx, s, ""); err != nil {
				return err
			}
		}
	}
	return t.unpin(volume)
}

// takeDown removes a subsystem (block.md B-266) and answers the ports it served. Leaving the port cuts every session,
// disabling the namespace waits for the I/O in flight, and with the subsystem goes the
// last thing an old session could reach. The link of lastHost is removed last.
func (t *Target) takeDown(ctx context.Context, s *subsystem, lastHost string) ([]port, error) {
	nqn := s.dir.Base()
	ports, err := t.linkedPorts(nqn)
	if err != nil {
		return nil, err
	}
	for _, p := range ports {
		if err := settle(ctx, func() error { return p.dir.Sub("subsystems").Unlink(ctx, nqn) }); err != nil {
			return nil, err
		}
	}
	if s.namespace {
		if err := s.ns().Set(ctx, "enable", "0"); err != nil {
			return nil, err
		}
		if err := settle(ctx, func() error { return s.ns().Rmdir(ctx) }); err != nil {
			return nil, err
		}
	}
	hosts := slices.DeleteFunc(slices.Clone(s.hosts), func(h string) bool { return h == lastHost })
	if lastHost != "" {
		hosts = append(hosts, lastHost)
	}
	for _, h := range hosts {
		if err := s.dir.Sub("allowed_hosts").Unlink(ctx, h); err != nil {
			return nil, err
		}
	}
	return ports, settle(ctx, func() error { return s.dir.Rmdir(ctx) })
}

// linkedPorts answers the ports that serve a subsystem.
func (t *Target) linkedPorts(nqn string) ([]port, error) {
	all, err := t.portList()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(p port) bool { return !slices.Contains(p.links, nqn) }), nil
}

// List answers the exports the kernel has under our prefix, in order of their NQN,
// whoever made them. One that no port serves has a zero Portal.
func (t *Target) List(ctx context.Context) ([]transport.Target, error) {
	names, err := t.nvmet.Sub("subsystems").List()
	if err != nil {
		return nil, fmt.Errorf("list exports: %w", err)
	}
	ports, err := t.portList()
	if err != nil {
		return nil, fmt.Errorf("list exports: %w", err)
	}
	var all []transport.Target
	for _, nqn := range names {
		if !strings.HasPrefix(nqn, Prefix) {
			continue
		}
		s, err := t.subsystem(nqn)
		if err != nil {
			return nil, fmt.Errorf("list exports: %w", err)
		}
		if s != nil { // else removed since the directory was read
			all = append(all, s.target(ports))
		}
	}
	return all, ctx.Err()
}

func (s *subsystem) target(ports []port) transport.Target {
	nqn := s.dir.Base()
	tgt := transport.Target{ID: nqn, Ref: nqn, Enabled: s.enabled, ACL: !s.anyHost}
	if tgt.ACL {
		tgt.Initiators = s.hosts
	}
	for _, p := range ports {
		if slices.Contains(p.links, nqn) {
			tgt.Portal = p.portal
		}
	}
	return tgt
}
