package exports

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pillar-csi/pillar/storage"
)

// How long one look for the devices of a pool may take: three programs on a slow machine, and
// what each volume adds. It is less than the caller's patience with a request of one volume.
// A look that has not ended lookGrace later hangs in the kernel.
const (
	lookWait  = 20 * time.Second
	lookEach  = 100 * time.Millisecond
	lookGrace = 5 * time.Second
)

// findDevices activates the volumes of all entries whose token is admitted, pools at the same
// time, and finds their devices. It changes nothing but that a volume is active, so the locks
// of the volumes are not held meanwhile: what takes access away need not wait for a pool.
func (g *Gate) findDevices(ctx context.Context, entries []*entry) {
	for _, e := range entries {
		if e.err == nil {
			e.err = g.fence.Check(e.Export.Volume, e.Token, grant)
		}
	}
	var looking sync.WaitGroup
	for key, of := range byPool(entries) {
		looking.Go(func() { g.findIn(ctx, key, of) })
	}
	looking.Wait()
}

// findIn finds the devices of one pool's entries.
func (g *Gate) findIn(ctx context.Context, key poolKey, entries []*entry) {
	owners := map[string]storage.Owner{}
	for _, e := range entries {
		owners[e.id.Name] = storage.Owner(e.Token.UID)
	}
	found, err := g.look(ctx, key, owners)
	for _, e := range entries {
		if e.err = err; err == nil {
			e.err = e.use(found)
		}
	}
}

// look asks the pool and gives up on one that hangs: nothing can end what waits in the kernel
// for a dead disk. It is not asked again while it does.
func (g *Gate) look(ctx context.Context, key poolKey, owners map[string]storage.Owner) (map[string]Device, error) {
	if g.hangs(key) {
		return nil, fmt.Errorf("pool %s hangs: an earlier look for its devices has not ended", key.name)
	}
	limit := lookWait + time.Duration(len(owners))*lookEach
	ctx, cancel := context.WithTimeout(ctx, limit)
	until := g.now().Add(deviceWait)
	done := make(chan map[string]Device, 1)
	go func() {
		defer cancel()
		done <- g.volumes.Devices(ctx, key.backend, key.name, owners, until)
	}()
	select {
	case found := <-done:
		return found, nil
	case <-time.After(limit + lookGrace):
		g.addHung(key, 1)
		go func() {
			<-done
			g.addHung(key, -1)
		}()
		return nil, fmt.Errorf("pool %s hangs: no answer about its devices: %w", key.name, context.DeadlineExceeded)
	}
}

func (g *Gate) hangs(key poolKey) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hung[key] > 0
}

// addHung counts: requests look at a pool beside each other, and one of them may end first.
func (g *Gate) addHung(key poolKey, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hung[key] += n
}
