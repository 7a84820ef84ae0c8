package fencing

import (
	"context"
	"sync"
)

// locks is one lock per volume. A lock nobody holds or waits for takes no memory.
type locks struct {
	mu   sync.Mutex
	held map[string]*lock
}

type lock struct {
	token chan struct{} // holds one element while the lock is taken
	users int           // holder and waiters
}

// acquire waits for the volume's lock until ctx ends and answers its release.
func (l *locks) acquire(ctx context.Context, volume string) (release func(), err error) {
	if err := ctx.Err(); err != nil { // else a free lock would win at random
		return nil, err
	}
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*lock{}
	}
	k := l.held[volume]
	if k == nil {
		k = &lock{token: make(chan struct{}, 1)}
		l.held[volume] = k
	}
	k.users++
	l.mu.Unlock()

	select {
	case k.token <- struct{}{}:
		return func() { <-k.token; l.leave(volume, k) }, nil
	case <-ctx.Done():
		l.leave(volume, k)
		return nil, ctx.Err()
	}
}

func (l *locks) leave(volume string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.held, volume)
	}
}
