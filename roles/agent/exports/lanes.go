package exports

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pillar-csi/pillar/storage"
)

// A pool has lanes for its volumes, which are taken in their order. A phase begins with one,
// or with one for each processor, as its steps are system calls. When none has ended for
// laneWait, those under way get company in another lane, and a step that hangs closes its lane
// for the phase. So a volume that hangs costs the others of its pool laneWait; a pool that
// hangs costs its own volumes the time of one, and those of other pools nothing:
//
//	lane 1  a ── b ── c ───────────────── hangs ✕
//	lane 2              d ── e ── f ── g
const (
	laneCount = 4
	laneWait  = time.Second
)

// inOrder is one lane: a step begins when the one before has ended.
const inOrder = 1

// beside is a lane for each processor.
func beside() int { return min(runtime.GOMAXPROCS(0), laneCount) }

// phase runs one step for every entry that got this far, each under its own fence and lock:
// a revoke that comes between two phases wins by its higher generation. Pools run at the same
// time, the volumes of one inOrder or beside each other.
func (g *Gate) phase(ctx context.Context, entries []*entry, first int, step func(context.Context, *entry) error) {
	var running sync.WaitGroup
	for key, of := range byPool(entries) {
		running.Go(func() {
			key.run(ctx, of, first, func(ctx context.Context, e *entry) error {
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

// run runs the step for entries of the pool, in so many lanes at first, and waits for all. One
// supervisor watches the lanes: timers and goroutines for each of a thousand steps would take
// longer than they do. When every lane has hung, the rest is not tried.
func (p poolKey) run(ctx context.Context, entries []*entry, first int, step func(context.Context, *entry) error) {
	r := &lanes{queue: make(chan *entry, len(entries)), ended: make(chan struct{}, laneCount)}
	for _, e := range entries {
		r.queue <- e
	}
	close(r.queue)
	started, open, before := 0, 0, int64(0)
	start := func() {
		started, open = started+1, open+1
		go r.lane(ctx, step)
	}
	for range first {
		start()
	}
	more := func() bool { return started < laneCount && len(r.queue) > 0 }
	beat := time.NewTicker(laneWait)
	defer beat.Stop()
	for open > 0 {
		select {
		case <-r.ended:
			open--
		case <-beat.C:
			now := r.steps.Load()
			if now == before && more() {
				start()
			}
			before = now
		}
		if open == 0 && more() { // hung between two beats
			start()
		}
	}
	for e := range r.queue {
		e.err = fmt.Errorf("pool %s hangs: %d of its volumes did not answer: %w", p.name, laneCount, context.DeadlineExceeded)
	}
}

// lanes are those of one pool in one phase.
type lanes struct {
	queue chan *entry
	steps atomic.Int64  // that have ended
	ended chan struct{} // a lane has: nothing is left, or it hung
}

// lane runs steps until one hangs.
func (r *lanes) lane(ctx context.Context, step func(context.Context, *entry) error) {
	for r.shift(ctx, step) {
	}
	r.ended <- struct{}{}
}

// shift runs steps for a second and says whether to go on. Each has stepWait, and up to the
// length of the shift more: they share their context.
func (r *lanes) shift(ctx context.Context, step func(context.Context, *entry) error) bool {
	ctx, cancel := context.WithTimeout(ctx, stepWait+time.Second)
	defer cancel()
	end := time.Now().Add(time.Second)
	for e := range r.queue {
		e.err = step(ctx, e)
		r.steps.Add(1)
		if errors.Is(e.err, context.DeadlineExceeded) {
			return false
		}
		if time.Now().After(end) {
			return true
		}
	}
	return false
}
