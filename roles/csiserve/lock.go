package csiserve

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// locks allows one operation at a time per volume.
type locks struct {
	wait bool // a busy lock waits for its turn until ctx ends
	now  func() time.Time

	mu   sync.Mutex
	held map[string]*holder
}

type holder struct {
	since time.Time
	done  chan struct{} // closed on release
}

func newLocks(wait bool, now func() time.Time) *locks {
	return &locks{wait: wait, now: now, held: map[string]*holder{}}
}

// acquire takes the lock of key and answers its release. A busy lock is Aborted: at once,
// or, when waiting is on, at the end of ctx.
func (l *locks) acquire(ctx context.Context, key string) (release func(), err error) {
	for {
		own, other := l.try(key)
		if own != nil {
			return func() { l.release(key, own) }, nil
		}
		if !l.wait {
			return nil, l.busy(key, other)
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return nil, l.busy(key, other)
		}
	}
}

func (l *locks) try(key string) (own, other *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.held[key]; ok {
		return nil, other
	}
	own = &holder{since: l.now(), done: make(chan struct{})}
	l.held[key] = own
	return own, nil
}

func (l *locks) release(key string, own *holder) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, key)
	close(own.done)
}

func (l *locks) busy(key string, other *holder) error {
	age := l.now().Sub(other.since).Round(100 * time.Millisecond)
	return As(Aborted, fmt.Errorf("operation on %s is already running for %s", key, age))
}
