package fencing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// N-3: fifty requests per volume arrive in any order and all at once. Effects of one
// volume never overlap, never go back in time, and the highest generation wins.
func TestStore_shuffledRequests(t *testing.T) {
	const volumes, generations = 4, 50
	s := open(t)
	type request struct {
		volume string
		tok    Token
	}
	var requests []request
	for v := range volumes {
		for g := range int64(generations) {
			requests = append(requests, request{fmt.Sprintf("vg0/pvc-%d", v), Token{"a", g + 1}})
		}
	}
	rand.Shuffle(len(requests), func(i, j int) { requests[i], requests[j] = requests[j], requests[i] })

	var at sync.Map // volume -> *effects
	var wg sync.WaitGroup
	for _, r := range requests {
		seen, _ := at.LoadOrStore(r.volume, &effects{})
		wg.Go(func() {
			_, err := s.Do(t.Context(), r.volume, r.tok, export, func(context.Context) error {
				return seen.(*effects).run(r.tok.Generation)
			})
			if err != nil && !errors.Is(err, ErrStale) {
				t.Errorf("Do(%s, %s) = %v", r.volume, r.tok, err)
			}
		})
	}
	wg.Wait()
	for v := range volumes {
		mark, err := s.Mark(fmt.Sprintf("vg0/pvc-%d", v))
		if err != nil || mark.Generation != generations {
			t.Errorf("volume %d ended at %+v, %v, want generation %d", v, mark, err, generations)
		}
	}
	if len(s.locks.held) != 0 {
		t.Errorf("%d locks left behind", len(s.locks.held))
	}
}

// effects is a volume's backend: it notices company and time travel.
type effects struct {
	busy sync.Mutex
	last int64
}

func (e *effects) run(generation int64) error {
	if !e.busy.TryLock() {
		return errors.New("two effects at once")
	}
	defer e.busy.Unlock()
	runtime.Gosched()
	if generation < e.last {
		return fmt.Errorf("generation %d ran after %d", generation, e.last)
	}
	e.last = generation
	return nil
}

// B-151: a volume that hangs does not hold up another; a waiter leaves when its context
// ends, and nothing of it remains.
func TestStore_lockWaits(t *testing.T) {
	s := open(t)
	release, err := s.locks.acquire(t.Context(), volume)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Do(ctx, volume, Token{"a", 1}, create, mustNotRun(t)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Do on a held volume = %v, want %v", err, context.DeadlineExceeded)
	}
	wantMark(t, s, nil)
	if d, err := s.Do(t.Context(), "vg0/other", Token{"a", 1}, create, nothing); err != nil {
		t.Errorf("Do on another volume = %q, %v", d, err)
	}
	release()
	do(t, s, Token{"a", 1}, create)
}

// B-151: an effect that outlives its caller keeps the volume, so that nothing it still
// does meets another operation; its end lets the next one in.
func TestStore_hangingAct(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		let := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Do(ctx, volume, Token{"a", 1}, create, func(context.Context) error { <-let; return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do that hangs = %v, want %v", err, context.DeadlineExceeded)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Do(ctx, volume, Token{"a", 2}, deny, mustNotRun(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do beside one that hangs = %v, want %v", err, context.DeadlineExceeded)
		}
		close(let)
		do(t, s, Token{"a", 2}, deny)
	})
}

// A caller that goes away does not stop its operation; an operation it never began stays
// undone.
func TestStore_cancelled(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Do(ctx, volume, Token{"a", 1}, create, func(ctx context.Context) error { cancel(); return ctx.Err() })
	if err != nil {
		t.Errorf("Do whose caller left = %v, want nil", err)
	}
	for range 20 {
		if _, err := s.Do(ctx, volume, Token{"a", 2}, deny, mustNotRun(t)); !errors.Is(err, context.Canceled) {
			t.Fatalf("Do for a caller that left = %v, want %v", err, context.Canceled)
		}
	}
}
