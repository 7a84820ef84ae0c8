package exports

import (
	"context"
	"slices"

	"github.com/pillar-csi/pillar/transport"
)

// link links the entries of each target in one go, under the locks of all of them: a port
// listens from its first link on, and a host that comes before the last may be lost (P-13).
func (g *Gate) link(ctx context.Context, entries []*entry) {
	ctx, cancel := context.WithTimeout(ctx, stepWait) // to get the locks, and the links
	defer cancel()
	for kind, target := range g.targets {
		var of []*entry
		for _, e := range entries {
			if e.Export.Kind == kind {
				of = append(of, e)
			}
		}
		for e, err := range g.together(ctx, of, nil, target) {
			e.err = err
		}
	}
}

// locked are entries whose locks are held.
type locked struct {
	*entry
	before *locked
}

// together links those entries that their fences admit, inside the fences of those that have
// got in. No other caller holds two, so that nobody waits for one of these with one of these.
func (g *Gate) together(ctx context.Context, entries []*entry, in *locked, target Target) map[*entry]error {
	if len(entries) == 0 {
		return in.link(ctx, target)
	}
	e, rest := entries[0], entries[1:]
	entered, inner := make(chan struct{}, 1), make(chan map[*entry]error, 1)
	err := g.fence.Do(ctx, e.Export.Volume, e.Token, grant, func(ctx context.Context) error {
		entered <- struct{}{}
		errs := g.together(ctx, rest, &locked{e, in}, target)
		inner <- errs
		return errs[e]
	})
	if len(entered) == 0 {
		errs := g.together(ctx, rest, in, target)
		errs[e] = err
		return errs
	}
	select {
	case errs := <-inner:
		errs[e] = err
		return errs
	default: // it hangs, and so do those within
	}
	errs := map[*entry]error{}
	for _, e := range entries {
		errs[e] = err
	}
	for ; in != nil; in = in.before {
		errs[in.entry] = err
	}
	return errs
}

// link links all, first come first, and answers an error or nil for each.
func (l *locked) link(ctx context.Context, target Target) map[*entry]error {
	var all []*entry
	for ; l != nil; l = l.before {
		all = append(all, l.entry)
	}
	slices.Reverse(all)
	wants := make([]transport.Export, len(all))
	for i, e := range all {
		wants[i] = e.want
	}
	errs := map[*entry]error{}
	for i, err := range target.Link(ctx, wants) {
		errs[all[i]] = err
	}
	return errs
}
