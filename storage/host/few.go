package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// lingerMost is how many programs of one pool may hang in the kernel before no other is
// started beside those that run.
const lingerMost = 8

// ErrHangs is a program that was not started: too many that were killed have not ended.
var ErrHangs = errors.New("what was asked before hangs in the kernel")

// ErrNoAnswer is a program that took longer than it may. It is no context.DeadlineExceeded:
// the caller's own deadline has not passed.
var ErrNoAnswer = errors.New("no answer")

// LingerError is a program that was killed and does not end: it waits in the kernel, for a
// disk that does not answer.
type LingerError struct {
	Err  error           // why it was killed
	Gone <-chan struct{} // closed when it has ended after all
}

func (e *LingerError) Error() string { return e.Err.Error() + ", and it does not end when killed" }
func (e *LingerError) Unwrap() error { return e.Err }

// Few runs the programs of one pool: some at once, each for a limited time, and none while
// lingerMost of them linger. A pool is asked how it is again and again for days; without an
// end to it the processes would be those that the other pools then lack (H-26).
type Few struct {
	run       Runner
	limit     time.Duration
	turns     chan struct{}
	lingering atomic.Int64
}

// NewFew answers a Runner for the programs of one pool, at most so many at once. One that
// runs longer than limit dies, with everything it started: ErrNoAnswer.
func NewFew(run Runner, atOnce int, limit time.Duration) *Few {
	return &Few{run: run, limit: limit, turns: make(chan struct{}, atOnce)}
}

// Run implements Runner. Who waits for a turn waits no longer than its own context.
func (f *Few) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	select {
	case f.turns <- struct{}{}:
		defer func() { <-f.turns }()
	case <-ctx.Done():
		return nil, fmt.Errorf("%s: %w", name, ctx.Err())
	}
	if n := f.lingering.Load(); n >= lingerMost {
		return nil, fmt.Errorf("%s: %w: %d programs that were killed have not ended", name, ErrHangs, n)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.limit, fmt.Errorf("%w within %s", ErrNoAnswer, f.limit))
	defer cancel()
	out, err := f.run.Run(ctx, name, args...)
	var linger *LingerError
	if errors.As(err, &linger) {
		f.lingering.Add(1)
		go func() {
			<-linger.Gone
			f.lingering.Add(-1)
		}()
	}
	return out, err
}
