package fencing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/pillar-csi/pillar/storage/host/durable"
)

// Store keeps the marks of one agent. One process at a time owns its directory (B-282).
type Store struct {
	dir   string
	fs    durable.FS
	locks locks

	// unsure holds the volumes whose last write answered an error: the mark they show may
	// still vanish in a crash, so that an equal token writes it again.
	unsure sync.Map
}

// Open opens the marks in dir, usually generations/ below the agent's state directory,
// and makes it if it is missing.
func Open(dir string) (*Store, error) {
	if err := durable.Prepare(dir, 0o700); err != nil {
		return nil, fmt.Errorf("%w: prepare %s: %w", ErrMark, dir, err)
	}
	return &Store{dir: dir, fs: durable.Disk{}}, nil
}

// Mark answers the mark of a volume, nil if none was ever written. ErrMark: there is one
// that cannot be read or trusted.
func (s *Store) Mark(volume string) (*Mark, error) {
	path := s.path(volume)
	data, err := s.fs.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w of volume %s: %w", ErrMark, volume, err)
	}
	mark, err := parseMark(data, volume)
	if err != nil {
		return nil, fmt.Errorf("%w of volume %s: parse %s: %w", ErrMark, volume, path, err)
	}
	return mark, nil
}

// Do runs one operation on a volume under its lock, if the token admits it. The mark is
// durable before act begins; a delete or release that succeeded is durable before Do
// answers. act does not run when there is nothing left to do (Decision AdmitTerminalRetry,
// ReleaseOfOther, or the end of a lifecycle that never owned the backend).
//
// ErrStale (a *Rejection), ErrMark and ErrForeign are the store's own; any other error is
// act's or the context's. After act failed the mark stays: the same token may retry.
//
// A caller that goes away does not stop act half-way, only its deadline does. An act that
// hangs in the kernel even then keeps the lock until it ends, but not its caller: until it
// has ended nobody can say what it will still do to the volume (B-151). What act leaves
// behind may be read only after Do answered no error.
func (s *Store) Do(ctx context.Context, volume string, tok Token, op Op, act func(ctx context.Context) error) (Decision, error) {
	unlock, err := s.locks.acquire(ctx, volume)
	if err != nil {
		return "", fmt.Errorf("lock volume %s: %w", volume, err)
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(actLimit)
	}
	var d Decision
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		decided, err := s.locked(ctx, volume, tok, op, act)
		unlock()
		d = decided
		done <- err
	}()
	select {
	case err := <-done:
		return d, err
	case <-time.After(time.Until(deadline) + endWait):
		return "", fmt.Errorf("volume %s: the operation hangs and keeps its lock: %w", volume, context.DeadlineExceeded)
	}
}

// actLimit bounds an operation whose caller set no deadline; endWait is what one may take
// to notice its deadline: a killed program is waited for (host.Runner).
const (
	actLimit = 60 * time.Second
	endWait  = 5 * time.Second
)

// locked is Do under the volume's lock.
func (s *Store) locked(ctx context.Context, volume string, tok Token, op Op, act func(ctx context.Context) error) (Decision, error) {
	mark, d, err := s.admit(ctx, volume, tok, op)
	if err != nil || !d.runs() {
		return d, err
	}
	if err := s.run(ctx, mark, op, act); err != nil {
		return d, err
	}
	return s.end(d, tok, mark, op)
}

// admit decides, and answers the mark that is durable now.
func (s *Store) admit(ctx context.Context, volume string, tok Token, op Op) (*Mark, Decision, error) {
	mark, err := s.Mark(volume)
	if err != nil {
		return nil, MarkIOError, err // B-162
	}
	next, d := Admit(mark, tok, op)
	if d.Rejected() {
		return nil, d, rejection(d, volume, tok, mark)
	}
	if next == nil {
		next = mark
	}
	next = next.with(func(m *Mark) { m.Volume = volume })
	if op.Create && op.Probe != nil && d.runs() && (d == AdmitNewLifecycle || next.Foreign) { // B-217
		if next.Foreign, err = op.Probe(ctx); err != nil {
			return nil, d, err
		}
	}
	if _, unsure := s.unsure.Load(volume); next.equal(mark) && !unsure { // B-157
		return next, d, nil
	}
	if err := s.write(next); err != nil {
		return nil, MarkIOError, err // B-156, B-162
	}
	return next, d, nil
}

// run makes the effect, unless the volume's backend is somebody else's: then a grant is
// refused and everything else has nothing to take away (B-217).
func (s *Store) run(ctx context.Context, mark *Mark, op Op, act func(ctx context.Context) error) error {
	if !mark.Foreign {
		return act(ctx)
	}
	if op.Class == Grant {
		return fmt.Errorf("volume %s: %w", mark.Volume, ErrForeign)
	}
	return nil
}

// end writes how the lifecycle ended (B-175, B-176), if the mark is still the admitted one.
func (s *Store) end(d Decision, tok Token, admitted *Mark, op Op) (Decision, error) {
	ending := op.ending()
	if ending == Live {
		return d, nil
	}
	now, err := s.Mark(admitted.Volume)
	if err != nil {
		return MarkIOError, err
	}
	if !now.equal(admitted) {
		return RejectMarkChanged, rejection(RejectMarkChanged, admitted.Volume, tok, now) // B-174
	}
	if err := s.write(admitted.with(func(m *Mark) { m.Ended = ending })); err != nil {
		return MarkIOError, err
	}
	return d, nil
}

func (s *Store) write(m *Mark) error {
	data, err := encodeMark(m)
	if err != nil {
		return fmt.Errorf("%w of volume %s: %w", ErrMark, m.Volume, err)
	}
	s.unsure.Store(m.Volume, true)
	if err := durable.WriteTo(s.fs, s.path(m.Volume), data, 0o600); err != nil {
		return fmt.Errorf("%w of volume %s: %w", ErrMark, m.Volume, err)
	}
	s.unsure.Delete(m.Volume)
	return nil
}

// markName is the file name of a volume's mark.
func markName(volume string) string { return durable.Name(volume) + ".json" }

func (s *Store) path(volume string) string { return filepath.Join(s.dir, markName(volume)) }

func rejection(d Decision, volume string, tok Token, mark *Mark) error {
	r := &Rejection{Decision: d, Volume: volume, Token: tok}
	if mark != nil {
		r.Owner = Token{mark.Owner, mark.Generation}
	}
	return r
}
