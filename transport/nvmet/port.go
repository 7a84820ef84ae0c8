package nvmet

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"syscall"

	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
)

// mdtsUnit is the unit of param_mdts: the controller's smallest page, CAP.MPSMIN of nvmet.
const mdtsUnit = 4096

// mdts converts a transfer limit in bytes to the kernel's exponent; nil and 0 are no limit.
func mdts(limit *int32) (int, error) {
	if limit == nil || *limit == 0 {
		return 0, nil
	}
	n := *limit
	if n < 2*mdtsUnit || n&(n-1) != 0 { // 4096 itself would be exponent 0: no limit
		return 0, fmt.Errorf("%w: maximum data transfer size %d is not a power of two of at least %d", transport.ErrInvalid, n, 2*mdtsUnit)
	}
	return bits.TrailingZeros32(uint32(n) / mdtsUnit), nil
}

// portID is where probing for a free port directory starts: a function of the portal, so
// that a rebuilt target looks like the one before. nvmet takes 1 to 65535.
func portID(p transport.Portal) int {
	sum := sha256.Sum256([]byte("pillar-csi.bhyoo.com/nvmet/port\x00" + p.String()))
	return int(binary.BigEndian.Uint16(sum[:]))%65535 + 1
}

// Live answers the portals of all ports that serve a subsystem, ours or not.
func (t *Target) Live(ctx context.Context) ([]transport.Portal, error) {
	all, err := t.portList()
	if err != nil {
		return nil, err
	}
	var live []transport.Portal
	for _, p := range all {
		if len(p.links) > 0 {
			live = append(live, p.portal)
		}
	}
	return live, ctx.Err()
}

// asks is what a plan wants of its port.
type asks struct {
	portal       transport.Portal
	inline, mdts int // inline -1: any
}

func (p plan) asks() asks {
	a := asks{portal: p.Portal, inline: -1, mdts: p.mdts}
	if p.InCapsuleDataSize != nil {
		a.inline = int(*p.InCapsuleDataSize)
	}
	return a
}

// lastLink is a link into a port that was found to be as asked.
type lastLink struct {
	port configfs.Dir
	nqn  string
}

// portOf answers the directory of the plan's port, ready for the link. A port that still has
// the link which was made last for the same wishes is as it was then: the kernel lets no live
// port change. Looking at every port and its links again, for each of a thousand exports,
// would take longer than all else. The caller holds t.ports.
func (t *Target) portOf(ctx context.Context, p plan) (configfs.Dir, error) {
	if last, ok := t.last[p.asks()]; ok && last.nqn != p.nqn {
		there, err := last.port.Sub("subsystems").Linked(last.nqn)
		if there || err != nil && !errors.Is(err, fs.ErrNotExist) { // somebody may remove a port
			return last.port, err
		}
	}
	found, err := t.port(ctx, p)
	maps.DeleteFunc(t.last, func(_ asks, l lastLink) bool { return l.port == found.dir }) // it may have been idle
	return found.dir, err
}

// port answers the port of the plan's portal, ready for the link. The caller holds t.ports.
func (t *Target) port(ctx context.Context, p plan) (port, error) {
	have, err := t.findPort(ctx, p)
	if err != nil {
		return port{}, err
	}
	bounds, err := t.bounds(have, p)
	if err != nil {
		return port{}, err
	}
	if len(have.links) > 0 {
		return have, have.accepts(p, bounds)
	}
	return have, have.set(ctx, p, bounds)
}

// findPort finds the port of the plan's portal or makes one.
func (t *Target) findPort(ctx context.Context, p plan) (port, error) {
	all, err := t.portList()
	if err != nil {
		return port{}, err
	}
	if i := slices.IndexFunc(all, func(have port) bool { return have.serves(p) }); i >= 0 {
		return all[i], nil
	}
	id, err := freePort(all, p)
	if err != nil {
		return port{}, err
	}
	fresh := port{id: id, dir: t.nvmet.Sub("ports", strconv.Itoa(id))}
	return fresh, fresh.dir.Mkdir(ctx)
}

// bounds tells whether the port can bound transfers: from Linux 7.1 on.
func (t *Target) bounds(have port, want plan) (bool, error) {
	names, err := have.dir.List()
	if err != nil {
		return false, err
	}
	bounds := slices.Contains(names, "param_mdts")
	if !bounds && want.mdts != 0 && t.cfg.Unbounded != nil {
		t.cfg.Unbounded()
	}
	return bounds, nil
}

// serves finds a port by its attributes: the ID proves nothing.
func (p *port) serves(want plan) bool {
	addr, err := netip.ParseAddr(p.traddr)
	return err == nil && addr.Unmap() == want.addr && p.portal.Port == want.Portal.Port && p.trtype == "tcp"
}

// freePort chooses the first ID from portID on that is unused, or used only by what an
// interrupted set for the same portal left behind.
func freePort(all []port, want plan) (int, error) {
	id := portID(want.Portal)
	for range 65535 {
		i := slices.IndexFunc(all, func(p port) bool { return p.id == id })
		if i < 0 || all[i].leftover(want) {
			return id, nil
		}
		id = id%65535 + 1
	}
	return 0, fmt.Errorf("%w: no nvmet port ID is free", transport.ErrPrecondition)
}

func (p *port) leftover(want plan) bool {
	ours := func(got, want string) bool { return got == "" || got == want }
	return len(p.links) == 0 && ours(p.trtype, "tcp") && ours(p.traddr, want.Portal.Address) &&
		ours(p.trsvcid, strconv.Itoa(int(want.Portal.Port)))
}

// set writes an idle port. Every attribute is written: a port that was live once shows
// the transport's default in-capsule size instead of -1.
func (p *port) set(ctx context.Context, want plan, bounds bool) error {
	family, inline := "ipv4", -1
	if want.addr.Is6() {
		family = "ipv6"
	}
	if want.InCapsuleDataSize != nil {
		inline = int(*want.InCapsuleDataSize)
	}
	attrs := [][2]string{
		{"addr_trtype", "tcp"},
		{"addr_adrfam", family},
		{"addr_traddr", want.Portal.Address},
		{"addr_trsvcid", strconv.Itoa(int(want.Portal.Port))},
		{"param_inline_data_size", strconv.Itoa(inline)},
	}
	if bounds {
		attrs = append(attrs, [2]string{"param_mdts", strconv.Itoa(want.mdts)})
	}
	for _, a := range attrs {
		if err := p.dir.Set(ctx, a[0], a[1]); err != nil {
			return err
		}
	}
	return nil
}

// accepts decides whether a live port, which cannot change, serves the request.
func (p *port) accepts(want plan, bounds bool) error {
	if want.InCapsuleDataSize != nil {
		have, err := p.dir.Read("param_inline_data_size")
		if err != nil {
			return err
		}
		if asked := strconv.Itoa(int(*want.InCapsuleDataSize)); have != asked {
			return p.refuse("param_inline_data_size", have, asked)
		}
	}
	if want.mdts == 0 || !bounds {
		return nil
	}
	text, err := p.dir.Read("param_mdts")
	if err != nil {
		return err
	}
	have, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("port %d: param_mdts: %w", p.id, err)
	}
	if have > want.mdts {
		return p.refuse("param_mdts", text, strconv.Itoa(want.mdts))
	}
	return nil
}

func (p *port) refuse(attr, have, asked string) error {
	return fmt.Errorf("%w: port %d (%s) is live with %s %s, asked for %s: ask for %s, use another TCP port, or unexport all %d volumes of this port first",
		transport.ErrPrecondition, p.id, p.portal, attr, have, asked, have, len(p.links))
}

// listens says what keeps the plan's port from listening, which it starts with its first link.
func (p plan) listens(err error) error {
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("%w: bind address: %s is not an address of this machine: give it to the machine or set another: %w", transport.ErrPrecondition, p.Portal, err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%w: bind address: something else listens at %s: end it or set another port: %w", transport.ErrPrecondition, p.Portal, err)
	}
	return err
}
