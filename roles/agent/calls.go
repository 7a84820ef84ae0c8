package agent

import (
	"context"
	"fmt"
	"sync"

	"github.com/pillar-csi/pillar/roles/agentrpc"
)

// calls knows what is running, so that a drain can wait for it and nothing new begins.
type calls struct {
	mu       sync.Mutex
	running  int
	draining bool
	idle     chan struct{} // closed when draining and nothing runs
}

func newCalls() *calls { return &calls{idle: make(chan struct{})} }

// enter begins a call; its leave must follow. After a drain began it is ErrUnavailable.
func (c *calls) enter() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return fmt.Errorf("%w: draining", agentrpc.ErrUnavailable)
	}
	c.running++
	return nil
}

func (c *calls) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running--
	c.settle()
}

// drain refuses new calls from now on. again says that an earlier drain did.
func (c *calls) drain() (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.draining {
		return true
	}
	c.draining = true
	c.settle()
	return false
}

// wait waits, after a drain, until the calls that run have finished.
func (c *calls) wait(ctx context.Context) error {
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for calls in flight: %w", ctx.Err())
	}
}

func (c *calls) settle() {
	if c.draining && c.running == 0 {
		close(c.idle)
	}
}
