package controller

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// seedKey names the seed to use instead of a new one, as a test that failed printed it. What
// two goroutines draw depends on who is first, so a seed brings back pauses of the same kind,
// not one run.
const seedKey = "PILLAR_SEED"

// chance draws a test's pauses and orders, for many goroutines.
type chance struct {
	mu   sync.Mutex
	rand *rand.Rand
}

func newChance(t *testing.T) *chance {
	t.Helper()
	seed := rand.Uint64()
	if set := os.Getenv(seedKey); set != "" {
		var err error
		if seed, err = strconv.ParseUint(set, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedKey, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("pauses and orders were drawn with %s=%d", seedKey, seed)
		}
	})
	return &chance{rand: rand.New(rand.NewPCG(seed, 0))}
}

// pause sleeps for less than limit; 0 is no pause.
func (c *chance) pause(limit time.Duration) {
	if limit <= 0 {
		return
	}
	c.mu.Lock()
	d := time.Duration(c.rand.Int64N(int64(limit)))
	c.mu.Unlock()
	time.Sleep(d)
}

func (c *chance) shuffle(n int, swap func(i, j int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rand.Shuffle(n, swap)
}
