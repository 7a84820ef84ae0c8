package exports

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pillar-csi/pillar/storage"
)

// A pool has lanes for its volumes, and uses one as long as each step ends soon. A step that
// is under way for laneWait gets company in the next lane, and one that hangs closes its lane
// for the phase. So a volume that hangs costs the others of its pool laneWait; a pool that
// hangs costs its own volumes the time of one, and those of other pools nothing:
//
//	lane 1  a ── b ── c ───────────────── hangs ✕
//	lane 2              d ── e ── f ── g
const (
	laneCount = 4
	laneWait  = time.Second
)

// phase runs one step for every entry that got this far, each under its own fence and lock:
// a revoke that comes between two phases wins by its higher generation. Pools run at the same
// time, the volumes of one in their order.
func (g *Gate) phase(ctx context.Context, entries []*entry, step func(context.Context, *entry) error) {
	var running sync.WaitGroup
	for key, of := range byPool(entries) {
		running.Go(func() {
			key.run(ctx, of, func(ctx context.Context, e *entry) error {
				return g.fence.Do(ctx, e.Export.Volume, e.Token, grant, func(ctx context.Context) error { return step(ctx, e) })
			})
		})
	}
	running.Wait()
}

// poolKey tells pools apart: two backends may have one of the same name.
type poolKey struct {
	backend storage.BackendType
	name    string
}

func (e *entry) pool() poolKey { return poolKey{e.Backend, e.id.Pool} }

// byPool sorts out the entries that got this far.
func byPool(entries []*entry) map[poolKey][]*entry {
	pools := map[poolKey][]*entry{}
	for _, e := range entries {
		if e.err == nil {
			pools[e.pool()] = append(pools[e.pool()], e)
		}
	}
	return pools
}

// run runs the step for entries of the pool, each for at most stepWait, and waits for all.
// When every lane has hung, the rest is not tried.
func (p poolKey) run(ctx context.Context, entries []*entry, step func(context.Context, *entry) error) {
	lanes := make(chan bool, laneCount) // one element per lane that is free, or (false) has hung
	for range laneCount {
		lanes <- true
	}
	open := laneCount
	var running sync.WaitGroup
	for _, e := range entries {
		for open > 0 && !<-lanes {
			open--
		}
		if open == 0 {
			e.err = fmt.Errorf("pool %s hangs: %d of its volumes did not answer: %w", p.name, laneCount, context.DeadlineExceeded)
			continue
		}
		done := make(chan struct{})
		running.Go(func() {
			defer close(done)
			ctx, cancel := context.WithTimeout(ctx, stepWait)
			defer cancel()
			e.err = step(ctx, e)
			lanes <- !errors.Is(e.err, context.DeadlineExceeded)
		})
		select {
		case <-done:
		case <-time.After(laneWait):
		}
	}
	running.Wait()
}
