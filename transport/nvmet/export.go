package nvmet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
)

// plan is an export whose every part was checked.
type plan struct {
	transport.Export
	nqn   string
	addr  netip.Addr
	hosts []string // sorted; empty without an ACL
	mdts  int      // log2 of the limit in units of 4096 bytes; 0: no limit
}

// parse checks an export. Every transport.ErrInvalid of Export comes from here.
func parse(e transport.Export) (p plan, err error) {
	p.Export = e
	if p.nqn, err = NQN(e.Volume); err != nil {
		return p, err
	}
	if p.addr, err = netip.ParseAddr(e.Portal.Address); err != nil {
		return p, fmt.Errorf("%w: bind address: %w", transport.ErrInvalid, err)
	}
	p.addr = p.addr.Unmap()
	p.Portal.Address = p.addr.String()
	if p.Portal.Port == 0 {
		p.Portal.Port = transport.NVMeTCP.DefaultPort()
	}
	if e.ACL {
		p.hosts = slices.Compact(slices.Sorted(slices.Values(e.Initiators)))
	}
	for _, h := range p.hosts {
		if _, err := transport.ParseNQN(h); err != nil {
			return p, err
		}
	}
	if e.InCapsuleDataSize != nil && *e.InCapsuleDataSize < 0 {
		return p, fmt.Errorf("%w: in-capsule data size %d", transport.ErrInvalid, *e.InCapsuleDataSize)
	}
	p.mdts, err = mdts(e.MaxDataTransferSize)
	return p, err
}

// Export makes the volume reachable as asked, or confirms that it is: Prepare, then Link.
func (t *Target) Export(ctx context.Context, e transport.Export, hold transport.Hold) (transport.Target, error) {
	if err := t.Prepare(ctx, e, hold); err != nil {
		return transport.Target{}, err
	}
	return t.Link(ctx, e)
}

// Prepare configures everything of the volume but its port (block.md B-248): directory,
// identity, hosts, and the namespace, enabled under hold or left disabled. What exists is
// compared and only differences are written; leftovers of a crash are completed. Nothing
// it does makes an unreachable volume reachable.
//
// With an ACL a host that is no longer listed loses its sessions too, as in Deny, and the
// others, which reconnect, find the volume where it was: Link may be long in coming. A
// subsystem on another device is transport.ErrPrecondition and stays untouched.
func (t *Target) Prepare(ctx context.Context, e transport.Export, hold transport.Hold) error {
	p, err := parse(e)
	if err != nil {
		return fmt.Errorf("export %s: %w", e.Volume, err)
	}
	if err := t.prepare(ctx, p, hold); err != nil {
		return fmt.Errorf("export %s: %w", e.Volume, err)
	}
	return nil
}

func (t *Target) prepare(ctx context.Context, p plan, hold transport.Hold) error {
	defer t.lock(p.nqn)()
	s, err := t.ours(p)
	if err != nil {
		return err
	}
	id, err := t.identity(p.Volume, p.nqn, s)
	if err != nil {
		return err
	}
	if s != nil && p.ACL && slices.ContainsFunc(s.hosts, func(h string) bool { return !slices.Contains(p.hosts, h) }) {
		return t.rebuild(ctx, s, p, id, "", hold)
	}
	if s, err = t.configure(ctx, p, id, s); err != nil {
		return err
	}
	return s.serve(ctx, p, hold)
}

// ours answers the plan's subsystem, nil if there is none; one of another device is
// transport.ErrPrecondition.
func (t *Target) ours(p plan) (*subsystem, error) {
	s, err := t.subsystem(p.nqn)
	if err != nil || s == nil {
		return nil, err
	}
	ours, err := s.backs(p.DevicePath)
	if err == nil && !ours {
		err = s.otherDevice(p.DevicePath)
	}
	return s, err
}

// configure brings subsystem, namespace and hosts into the planned state, in this order. In
// a new subsystem nothing needs to be compared: every value is written, and read back.
func (t *Target) configure(ctx context.Context, p plan, id Identity, s *subsystem) (*subsystem, error) {
	set := configfs.Dir.Set
	if s == nil {
		set = configfs.Dir.Put
		s = &subsystem{dir: t.subsystemDir(p.nqn), number: t.number}
		if err := settle(ctx, func() error { return s.dir.Mkdir(ctx) }); err != nil {
			return nil, err
		}
	}
	if p.ACL { // closed before anything else changes; new subsystems are
		if err := s.dir.Set(ctx, "attr_allow_any_host", "0"); err != nil {
			return nil, err
		}
	}
	if err := set(s.dir, ctx, "attr_serial", id.Serial); err != nil {
		return nil, err
	}
	if !s.namespace {
		if err := s.ns().Mkdir(ctx); err != nil {
			return nil, err
		}
	}
	if !s.enabled { // an enabled one has this device under another path, and this identity
		for _, a := range [][2]string{{"device_path", p.DevicePath}, {"device_uuid", id.UUID}, {"device_nguid", id.NGUID}} {
			if err := set(s.ns(), ctx, a[0], a[1]); err != nil {
				return nil, err
			}
		}
	}
	return s, t.admit(ctx, s, p)
}

// admit makes the hosts that may connect exactly the planned ones. The kernel refuses
// links while any host may connect and the other way round; both orders below admit
// nobody too early (block.md B-249).
func (t *Target) admit(ctx context.Context, s *subsystem, p plan) error {
	allowed := s.dir.Sub("allowed_hosts")
	for _, h := range s.hosts {
		if !slices.Contains(p.hosts, h) {
			if err := allowed.Unlink(ctx, h); err != nil {
				return err
			}
		}
	}
	if !p.ACL {
		return s.dir.Set(ctx, "attr_allow_any_host", "1")
	}
	for _, h := range p.hosts {
		if slices.Contains(s.hosts, h) {
			continue
		}
		if err := t.allow(ctx, s, h); err != nil {
			return err
		}
	}
	return nil
}

func (t *Target) allow(ctx context.Context, s *subsystem, hostNQN string) error {
	host, allowed := t.nvmet.Sub("hosts", hostNQN), s.dir.Sub("allowed_hosts")
	err := allowed.Link(ctx, host)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := host.Mkdir(ctx); err != nil { // the first volume of this host
		return err
	}
	return allowed.Link(ctx, host)
}

// serve enables the namespace under the claim, or disables it.
func (s *subsystem) serve(ctx context.Context, p plan, hold transport.Hold) error {
	if p.Disabled {
		return s.ns().Set(ctx, "enable", "0")
	}
	if s.enabled {
		return nil
	}
	release, err := hold(p.DevicePath)
	if err != nil {
		return fmt.Errorf("claim %s: %w", p.DevicePath, err)
	}
	err = s.ns().Put(ctx, "enable", "1")
	return errors.Join(err, release())
}

// Link makes the prepared volume reachable: it finds or makes the port of the portal and
// links the subsystem into it. A volume that was not prepared is transport.ErrNotFound; a
// live port that cannot serve the request is transport.ErrPrecondition. A link into another
// port stays: hosts may be connected there.
func (t *Target) Link(ctx context.Context, e transport.Export) (transport.Target, error) {
	p, err := parse(e)
	if err != nil {
		return transport.Target{}, fmt.Errorf("export %s: %w", e.Volume, err)
	}
	if err := t.link(ctx, p); err != nil {
		return transport.Target{}, fmt.Errorf("export %s: %w", e.Volume, err)
	}
	return transport.Target{
		ID: p.nqn, Ref: p.nqn, Portal: p.Portal,
		Enabled: !p.Disabled, ACL: p.ACL, Initiators: p.hosts,
	}, nil
}

func (t *Target) link(ctx context.Context, p plan) error {
	defer t.lock(p.nqn)()
	s := &subsystem{dir: t.subsystemDir(p.nqn), number: t.number}
	if err := s.linkable(p); err != nil {
		return err
	}
	t.ports.Lock()
	defer t.ports.Unlock()
	dir, err := t.portOf(ctx, p)
	if err != nil {
		return err
	}
	if err := p.listens(dir.Sub("subsystems").Link(ctx, s.dir)); err != nil {
		return err
	}
	t.last[p.asks()] = lastLink{port: dir, nqn: p.nqn}
	return nil
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
