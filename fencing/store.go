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

	// unsure holds the volumes whose last write answered an error after its rename: the mark
	// they show may still vanish in a crash, so that an equal token writes it again.
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

// Check is the *Rejection that Do would answer now, nil if it would admit the token. It takes
// no lock and writes nothing, so that it decides nothing but what need not be tried.
func (s *Store) Check(volume string, tok Token, op Op) error {
	mark, err := s.Mark(volume)
	if err != nil {
		return err
	}
	if _, d := Admit(mark, tok, op); d.Rejected() {
		return rejection(d, volume, tok, mark)
	}
	return nil
}

// Do runs one operation on a volume under its lock, if the token admits it. The mark is
// durable before act begins; a delete or release that succeeded is durable before Do
// answers. act does not run when there is nothing left to do (Decision AdmitTerminalRetry,
// ReleaseOfOther, or the end of a lifecycle that never owned the backend).
//
// act answers ErrForeign when it meets a backend that is not this lifecycle's and leaves it
// alone. The create that begins a lifecycle then remembers that (B-217). A delete succeeds if
// the lifecycle never created anything, and ends it; if it did, what became of that is for a
// human to say, also when it is a create that asks again.
//
// ErrStale (a *Rejection), ErrMark, ErrForeign and ErrNotAdopted are the store's own; any
// other error is act's or the context's. After act failed the token may be used again.
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
	admitted, d, err := s.admit(ctx, volume, tok, op)
	if err != nil || !d.runs() {
		return d, err
	}
	runs, err := permit(admitted.mark.Origin, op)
	if err != nil {
		return d, fmt.Errorf("volume %s: %w", volume, err)
	}
	if runs {
		err = act(ctx)
	}
	return s.end(d, tok, admitted, op, err)
}

// admission is an operation that may go on.
type admission struct {
	mark    *Mark // durable now
	creates bool  // it is this very call that wrote Created: whatever has the name is not ours
}

// admit decides, and makes the mark durable that the operation needs.
func (s *Store) admit(ctx context.Context, volume string, tok Token, op Op) (admission, Decision, error) {
	mark, err := s.Mark(volume)
	if err != nil {
		return admission{}, MarkIOError, err // B-162
	}
	next, d := Admit(mark, tok, op)
	if d.Rejected() {
		return admission{}, d, rejection(d, volume, tok, mark)
	}
	if next == nil {
		next = mark
	}
	next = next.with(func(m *Mark) { m.Volume = volume })
	before := next.Origin
	if d.runs() {
		if next.Origin, err = origin(ctx, before, op); err != nil {
			return admission{}, d, err
		}
	}
	admitted := admission{mark: next, creates: next.Origin == Created && before != Created}
	if _, unsure := s.unsure.Load(volume); next.equal(mark) && !unsure { // B-157
		return admitted, d, nil
	}
	if err := s.write(next); err != nil {
		return admission{}, MarkIOError, err // B-156, B-162
	}
	return admitted, d, nil
}

// origin is what the mark says of the backend once the operation is admitted.
func origin(ctx context.Context, before Origin, op Op) (Origin, error) {
	switch {
	case op.Import && before == Unknown:
		return Importing, nil
	case !op.Create || before != Unknown && before != Foreign:
		return before, nil
	case op.Taken == nil:
		return Created, nil
	}
	taken, err := op.Taken(ctx)
	if taken {
		return Foreign, err
	}
	return Created, err
}

// end writes what the effect, which answered err, means for the lifecycle: adopted, taken by
// somebody else, or over (B-175, B-176).
func (s *Store) end(d Decision, tok Token, admitted admission, op Op, err error) (Decision, error) {
	foreign, mark := errors.Is(err, ErrForeign), admitted.mark
	next := mark.with(func(m *Mark) {
		switch {
		case foreign && (admitted.creates || op.Delete && m.Origin == Unknown):
			m.Origin = Foreign
		case err == nil && op.Import:
			m.Origin = Adopted
		}
		if err == nil || op.Delete && m.Origin == Foreign {
			m.Ended = op.ending()
		}
	})
	if next.equal(mark) {
		return d, err
	}
	now, e := s.Mark(mark.Volume)
	if e != nil {
		return MarkIOError, errors.Join(e, err)
	}
	if !now.equal(mark) {
		return RejectMarkChanged, rejection(RejectMarkChanged, mark.Volume, tok, now) // B-174
	}
	if e := s.write(next); e != nil {
		return MarkIOError, errors.Join(e, err)
	}
	if next.Ended != Live {
		err = nil // what was not the lifecycle's is spared
	}
	return d, err
}

func (s *Store) write(m *Mark) error {
	data, err := encodeMark(m)
	if err != nil {
		return fmt.Errorf("%w of volume %s: %w", ErrMark, m.Volume, err)
	}
	_, unsure := s.unsure.LoadOrStore(m.Volume, true)
	if err := durable.WriteTo(s.fs, s.path(m.Volume), data, 0o600); err != nil {
		if now, e := s.Mark(m.Volume); e == nil && !unsure && !now.equal(m) {
			s.unsure.Delete(m.Volume) // it never came to the rename: nothing changed
		}
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
