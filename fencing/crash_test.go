package fencing

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/storage/host/durable/durabletest"
)

// crashCase is one operation on a mark that may be there.
type crashCase struct {
	before *Mark
	tok    Token
	op     Op
	act    func(context.Context) error // nil: success
	during *Mark                       // on disk for certain while the effect runs
	after  []*Mark                     // what the disk may hold once the power is back, beside before
}

func crashCases() map[string]crashCase {
	return map[string]crashCase{
		"first create": {before: nil, tok: Token{"a", 1}, op: create, during: created(live("a", 1)), after: []*Mark{created(live("a", 1))}},
		"advance":      {before: live("a", 1), tok: Token{"a", 2}, op: export, during: live("a", 2), after: []*Mark{live("a", 2)}},
		"taken name":   {before: nil, tok: Token{"a", 1}, op: taking(true, nil), after: []*Mark{foreign(live("a", 1))}},
		"delete": {
			before: live("a", 2), tok: Token{"a", 3}, op: destroy, during: live("a", 3),
			after: []*Mark{live("a", 3), ended(live("a", 3), Deleted)},
		},
		"spared": { // the effect answers ErrForeign
			before: nil, tok: Token{"a", 2}, op: destroy, act: met, during: live("a", 2),
			after: []*Mark{live("a", 2), ended(foreign(live("a", 2)), Deleted)},
		},
		"release": {
			before: from(Importing, live("a", 2)), tok: Token{"a", 3}, op: release, during: from(Importing, live("a", 3)),
			after: []*Mark{from(Importing, live("a", 3)), ended(from(Importing, live("a", 3)), Released)},
		},
		"import": {
			before: nil, tok: Token{"a", 1}, op: imports, during: from(Importing, live("a", 1)),
			after: []*Mark{from(Importing, live("a", 1)), from(Adopted, live("a", 1))},
		},
		"next life": {
			before: ended(live("a", 3), Deleted), tok: Token{"b", 1}, op: create,
			during: created(live("b", 1, Retired{"a", Deleted})), after: []*Mark{created(live("b", 1, Retired{"a", Deleted}))},
		},
	}
}

// N-6, B-156: the power fails at every step of an operation. The disk then holds a mark of
// that operation's way, never less; if the effect had begun, the mark it needs; and the
// same call, repeated, succeeds.
func TestStore_powerCut(t *testing.T) {
	for name, tt := range crashCases() {
		t.Run(name, func(t *testing.T) {
			began := false
			do := func(f *durabletest.FS) error {
				began = false
				_, err := store(f).Do(t.Context(), volume, tt.tok, tt.op, func(context.Context) error {
					began = true
					onlyMark(t, f, tt.during)
					return tt.effect()
				})
				return err
			}
			durabletest.EachCrash(t, tt.setup(t), do, func(t *testing.T, disk *durabletest.FS, err error) {
				got, e := store(disk).Mark(volume)
				known := slices.ContainsFunc(append(tt.after, tt.before), got.equal)
				if e != nil || !known {
					t.Fatalf("after the cut Mark = %+v, %v", got, e)
				}
				last := tt.after[len(tt.after)-1]
				if err == nil && !got.equal(last) || began && got.equal(tt.before) {
					t.Errorf("after %v (effect begun: %v) Mark = %+v", err, began, got)
				}
				tt.again(t, store(disk))
			})
		})
	}
}

// A step answers an error while the process lives: the call fails before the effect, or
// the effect's mark is certain; the same call, repeated, succeeds, and then only with a
// mark that no power cut can take away, also when the error came after the rename.
func TestStore_writeError(t *testing.T) {
	eio := errors.New("input/output error")
	for name, tt := range crashCases() {
		t.Run(name, func(t *testing.T) {
			var s *Store
			do := func(f *durabletest.FS) error {
				s = store(f)
				_, err := s.Do(t.Context(), volume, tt.tok, tt.op, func(context.Context) error { return tt.effect() })
				return err
			}
			durabletest.EachError(t, eio, tt.setup(t), do, func(t *testing.T, f *durabletest.FS, err error) {
				if !errors.Is(err, ErrMark) {
					t.Errorf("Do = %v, want ErrMark", err)
				}
				_, err = s.Do(t.Context(), volume, tt.tok, tt.op, func(context.Context) error {
					onlyMark(t, f, tt.during, tt.after[len(tt.after)-1])
					return tt.effect()
				})
				if err != nil && !errors.Is(err, ErrForeign) {
					t.Errorf("the same call again = %v", err)
				}
				onlyMark(t, f, tt.after[len(tt.after)-1])
			})
		})
	}
}

// B-157: a write that failed before its rename changed nothing, so that what the mark allows
// goes on while the disk is full.
func TestStore_diskFull(t *testing.T) {
	f := &full{FS: durabletest.New()}
	s := &Store{dir: "/generations", fs: f}
	do(t, s, Token{"a", 1}, create)
	for _, now := range []bool{true, false} {
		f.now = true
		if d, err := s.Do(t.Context(), volume, Token{"a", 2}, export, mustNotRun(t)); d != MarkIOError || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("Do on a full disk = %q, %v, want %q", d, err, MarkIOError)
		}
		do(t, s, Token{"a", 1}, export)
		wantMark(t, s, created(live("a", 1)))
		f.now = now
	}
	do(t, s, Token{"a", 2}, export)
}

// full is a disk on which nothing new finds room.
type full struct {
	*durabletest.FS
	now bool
}

func (f *full) CreateTemp(dir, pattern string, perm os.FileMode) (durable.File, error) {
	if f.now {
		return nil, unix.ENOSPC
	}
	return f.FS.CreateTemp(dir, pattern, perm)
}

func (tt crashCase) effect() error {
	if tt.act == nil {
		return nil
	}
	return tt.act(context.Background())
}

func store(f *durabletest.FS) *Store { return &Store{dir: "/generations", fs: f} }

func (tt crashCase) setup(t *testing.T) func(*durabletest.FS) {
	return func(f *durabletest.FS) {
		if tt.before == nil {
			return
		}
		data, err := encodeMark(tt.before)
		if err != nil {
			t.Fatal(err)
		}
		f.Put("/generations/"+markName(volume), data)
	}
}

// again is the same call, by a process that finds what the cut left.
func (tt crashCase) again(t *testing.T, s *Store) {
	t.Helper()
	effect := func(context.Context) error { return tt.effect() }
	if _, err := s.Do(t.Context(), volume, tt.tok, tt.op, effect); err != nil && !errors.Is(err, ErrForeign) {
		t.Errorf("the same call after the cut = %v", err)
	}
	wantMark(t, s, tt.after[len(tt.after)-1])
}

// onlyMark fails unless a power cut now would leave one of these marks.
func onlyMark(t *testing.T, f *durabletest.FS, want ...*Mark) {
	t.Helper()
	for _, image := range f.Images() {
		if got, err := store(image).Mark(volume); err != nil || !slices.ContainsFunc(want, got.equal) {
			t.Errorf("a cut now would leave %+v, %v, want %+v", got, err, want)
		}
	}
}
