package exports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// Restore processes the complete request: every export this agent is to keep. All items
// are resolved, then all prepared, then ports are linked, so that a host which reconnects
// meets all of its volumes or no listener. It opens the gate unless an idle port has to
// wait for a volume. Exports that are not listed stay as they are (B-276); a repeated
// request finds equality and writes nothing (B-277).
//
// An error means that the request as a whole was not processed; the gate stays closed.
func (g *Gate) Restore(ctx context.Context, items []agentrpc.Item) ([]agentrpc.ItemResult, error) {
	g.restoring.Lock()
	defer g.restoring.Unlock()
	began := g.begin()

	entries := g.order(ctx, items)
	g.findDevices(ctx, entries)
	active, err := g.activePorts(ctx)
	if err != nil {
		return nil, err
	}
	shareTransferSize(entries, active)
	g.phase(ctx, entries, beside(), func(ctx context.Context, e *entry) error { return e.target.Prepare(ctx, e.want, g.claim(e)) })

	early := g.now().Sub(began) < portHold
	held := early && holdPorts(entries, active)
	links := slices.DeleteFunc(slices.Clone(entries), func(e *entry) bool { return e.err != nil })
	loud := quiet(links, active)
	g.phase(ctx, links, inOrder, func(ctx context.Context, e *entry) error {
		_, err := e.target.Link(ctx, e.want)
		return err
	})
	loud()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("restore exports: %w", err)
	}
	shut := shutPorts(links, active)
	g.opened(!held && !(early && len(shut) > 0), shut)
	return results(entries), nil
}

// quiet keeps hosts out of the idle ports that the links will open, until loud: a port listens
// from its first link on, and a host that came before the last and asked for a volume that is
// not linked yet would be told not to come back (P-13).
func quiet(links []*entry, active map[port]bool) (loud func()) {
	ends := map[port]func(){}
	for _, e := range links {
		if p := e.port(); !active[p] && ends[p] == nil {
			ends[p] = e.target.Quiet(p.portal)
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// begin notes the first complete request and answers when it was.
func (g *Gate) begin() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first.IsZero() {
		g.first = g.now()
	}
	return g.first
}

// opened notes whether the gate is open from now on, and which ports are not.
func (g *Gate) opened(open bool, shut map[port]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open, g.shut = g.open || open, shut
}

// shutPorts answers the idle ports at which every link failed: they cannot listen, as long as
// the machine does not have their address, say.
func shutPorts(links []*entry, active map[port]bool) map[port]bool {
	shut := map[port]bool{}
	for _, e := range links {
		if e.err != nil && delays(e) && !active[e.port()] {
			shut[e.port()] = true
		}
	}
	for _, e := range links {
		if e.err == nil {
			delete(shut, e.port())
		}
	}
	return shut
}

// atShut is ErrUnavailable for an entry whose port the last complete request failed to open:
// opened for it alone, the port would cost the others their hosts (P-13).
func (g *Gate) atShut(e *entry) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if e.err == nil && g.shut[e.port()] {
		return fmt.Errorf("%w: export restore pending: port %s could not be opened", agentrpc.ErrUnavailable, e.Export.Portal)
	}
	return e.err
}

// order sorts the items (ready volumes first, within each group those that demand an
// in-capsule size, because the first link decides the port's) and takes conflicts out.
func (g *Gate) order(ctx context.Context, items []agentrpc.Item) []*entry {
	entries := g.routeAll(ctx, items)
	seen := map[string]*entry{}
	for _, e := range entries {
		if first, twice := seen[e.name]; twice && e.err == nil {
			e.err = fmt.Errorf("%w: %s and %s would both be %s", transport.ErrPrecondition, first.Export.Volume, e.Export.Volume, e.name)
			first.err = e.err
		}
		seen[e.name] = e
	}
	slices.SortStableFunc(entries, func(a, b *entry) int { return cmp.Compare(rank(a), rank(b)) })
	return entries
}

func rank(e *entry) int {
	r := 0
	if !e.Ready {
		r += 2
	}
	if e.Export.InCapsuleDataSize == nil {
		r++
	}
	return r
}

// port is a listener shared by volumes.
type port struct {
	kind   transport.Kind
	portal transport.Portal
}

func (e *entry) port() port { return port{e.Export.Kind, e.Export.Portal} }

// activePorts answers the ports that some export is reachable at.
func (g *Gate) activePorts(ctx context.Context) (map[port]bool, error) {
	active := map[port]bool{}
	for kind, target := range g.targets {
		if errors.Is(target.Available(ctx), transport.ErrUnsupported) {
			continue // no such target in this kernel, so no listener
		}
		live, err := target.Live(ctx)
		if err != nil {
			return nil, fmt.Errorf("live ports: %w", err)
		}
		for _, portal := range live {
			active[port{kind, portal}] = true
		}
	}
	return active, nil
}

// shareTransferSize gives the items of an idle port the smallest limit any of them asks
// for: the port has one, an upper bound, and no later item may lower it.
func shareTransferSize(entries []*entry, active map[port]bool) {
	least := map[port]int32{}
	for _, e := range entries {
		size := e.want.MaxDataTransferSize
		if e.err != nil || size == nil || *size == 0 || active[e.port()] {
			continue
		}
		if now, ok := least[e.port()]; !ok || *size < now {
			least[e.port()] = *size
		}
	}
	for _, e := range entries {
		if size, ok := least[e.port()]; ok {
			e.want.MaxDataTransferSize = &size
		}
	}
}

// holdPorts keeps idle ports closed that miss a volume, and says whether there are any.
func holdPorts(entries []*entry, active map[port]bool) (held bool) {
	missing := map[port]string{}
	for _, e := range entries {
		if e.err != nil && delays(e) && !active[e.port()] {
			missing[e.port()] = e.Export.Volume
		}
	}
	for _, e := range entries {
		if volume, ok := missing[e.port()]; ok && e.err == nil {
			e.err = fmt.Errorf("%w: export restore pending: port %s waits for volume %s", agentrpc.ErrUnavailable, e.Export.Portal, volume)
		}
	}
	return len(missing) > 0
}

// delays tells whether a failed item keeps its port closed: an NVMe one does, because its
// hosts would give up at the first answer (P-13). One whose token was rejected, or whose
// device is in local use, would not be served anyway (B-275).
func delays(e *entry) bool {
	return e.Export.Kind == transport.NVMeTCP &&
		!errors.Is(e.err, fencing.ErrStale) && !errors.Is(e.err, storage.ErrBusy) && !errors.Is(e.err, transport.ErrBusy)
}

func results(entries []*entry) []agentrpc.ItemResult {
	var all []agentrpc.ItemResult
	for _, e := range entries {
		all = append(all, agentrpc.ItemResult{Volume: e.Export.Volume, Err: e.err})
	}
	return all
}
