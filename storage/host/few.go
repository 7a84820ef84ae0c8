package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// lingerMost is how many programs of one pool may hang in the kernel at once.
const lingerMost = 8

// ErrHangs is a program that was not started: too many that were killed have not ended.
var ErrHangs = errors.New("what was asked before hangs in the kernel")

// LingerError is a program that was killed and does not end: it waits in the kernel, for a
// disk that does not answer.
type LingerError struct {
	Err  error           // why it was killed
	Gone <-chan struct{} // closed when it has ended after all
}

func (e *LingerError) Error() string { return e.Err.Error() + ", and it does not end when killed" }
func (e *LingerError) Unwrap() error { return e.Err }

// Few runs the programs of one pool, and none while lingerMost of them linger. A pool is asked
// how it is again and again for days; without an end to it the processes would be those that
// the other pools then lack (H-26).
type Few struct {
	Runner
	lingering atomic.Int64
}

// Run implements Runner.
func (f *Few) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	if n := f.lingering.Load(); n >= lingerMost {
		return nil, fmt.Errorf("%s: %w: %d programs that were killed have not ended", name, ErrHangs, n)
	}
	out, err := f.Runner.Run(ctx, name, args...)
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
