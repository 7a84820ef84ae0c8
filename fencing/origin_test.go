package fencing

import (
	"context"
	"errors"
	"testing"
)

// taking is a create whose name is taken by somebody else, or not.
func taking(taken bool, err error) Op {
	op := create
	op.Taken = func(context.Context) (bool, error) { return taken, err }
	return op
}

// met is an effect that finds somebody else's backend.
func met(context.Context) error { return ErrForeign }

// story is a life on one store: each step says what it wants.
type story struct {
	t *testing.T
	*Store
}

func (s story) refused(tok Token, op Op, want error) {
	s.t.Helper()
	if d, err := s.Do(s.t.Context(), volume, tok, op, mustNotRun(s.t)); !errors.Is(err, want) {
		s.t.Errorf("Do(%s, %s) = %q, %v, want %v", tok, op.Class, d, err, want)
	}
}

// idle wants success without an effect.
func (s story) idle(tok Token, op Op) {
	s.t.Helper()
	if d, err := s.Do(s.t.Context(), volume, tok, op, mustNotRun(s.t)); err != nil || d.Rejected() {
		s.t.Errorf("Do(%s, %s) = %q, %v, want success", tok, op.Class, d, err)
	}
}

// meets has the effect find somebody else's backend.
func (s story) meets(tok Token, op Op, want error) {
	s.t.Helper()
	if d, err := s.Do(s.t.Context(), volume, tok, op, met); !errors.Is(err, want) || want == nil && err != nil {
		s.t.Errorf("Do(%s, %s) = %q, %v, want %v", tok, op.Class, d, err, want)
	}
}

func (s story) do(tok Token, op Op) { s.t.Helper(); do(s.t, s.Store, tok, op) }

func (s story) mark(want *Mark) { s.t.Helper(); wantMark(s.t, s.Store, want) }

func tell(t *testing.T, stories map[string]func(s story)) {
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) { tell(story{t, open(t)}) })
	}
}

func TestStore_foreign(t *testing.T) {
	taken, free := taking(true, nil), taking(false, nil)
	a, a2, a3, b := Token{"a", 1}, Token{"a", 2}, Token{"a", 3}, Token{"b", 1}
	tell(t, map[string]func(s story){
		"B-217 a taken name is refused and noted in the first mark": func(s story) {
			s.refused(a, taken, ErrForeign)
			s.mark(foreign(live("a", 1)))
			s.refused(a, taken, ErrForeign)
			s.refused(a2, taken, ErrForeign)
			s.refused(a3, export, ErrForeign)
			s.refused(a3, imports, ErrForeign)
			s.mark(foreign(live("a", 3)))
		},
		"N-52 delete ends the life and touches nothing": func(s story) {
			s.refused(a, taken, ErrForeign)
			s.idle(a2, deny)
			s.idle(a2, destroy)
			s.mark(ended(foreign(live("a", 2)), Deleted))
			s.refused(b, taken, ErrForeign)
			s.mark(foreign(live("b", 1, Retired{"a", Deleted})))
		},
		"B-217 the object went away": func(s story) {
			s.refused(a, taken, ErrForeign)
			s.do(a, free)
			s.mark(created(live("a", 1)))
			s.do(a, taken) // now it is ours: the create of the same token
		},
		"B-217 found by the effect": func(s story) {
			s.meets(a, free, ErrForeign)
			s.mark(foreign(live("a", 1)))
			s.idle(a2, destroy)
		},
		"B-217 found by the effect once what had the name went away": func(s story) {
			s.refused(a, taken, ErrForeign)
			s.meets(a2, free, ErrForeign)
			s.mark(foreign(live("a", 2)))
		},
		"B-217 found by the effect of the next life": func(s story) {
			s.do(a, free)
			s.do(a2, destroy)
			s.meets(b, free, ErrForeign)
			s.mark(foreign(live("b", 1, Retired{"a", Deleted})))
		},
		"a free name is never asked for twice": func(s story) {
			s.do(a, free)
			s.do(a, taken)
			s.do(a2, taken)
			s.mark(created(live("a", 2)))
		},
		"a name is asked for although an export came first": func(s story) {
			s.do(a, export)
			s.refused(a, taken, ErrForeign)
		},
		"B-204 an unknown answer writes nothing": func(s story) {
			hung := errors.New("lvs hung")
			s.refused(a, taking(false, hung), hung)
			s.refused(a, taking(true, hung), hung)
			s.mark(nil)
		},
	})
}

// N-52: a life that begins with anything but a create owns what carries its mark, and
// nothing else; the effect knows the difference.
func TestStore_deleteMeetsForeign(t *testing.T) {
	a, a2, a3 := Token{"a", 1}, Token{"a", 2}, Token{"a", 3}
	tell(t, map[string]func(s story){
		"the create never arrived": func(s story) {
			s.meets(a2, destroy, nil)
			s.mark(ended(foreign(live("a", 2)), Deleted))
			s.idle(a2, destroy) // B-166
			s.refused(a3, create, ErrStale)
		},
		"the create never arrived, an unexport did": func(s story) {
			s.do(a2, deny)
			s.meets(a2, destroy, nil)
			s.mark(ended(foreign(live("a", 2)), Deleted))
		},
		"B-160 the marks were lost": func(s story) {
			s.do(Token{"a", 14}, destroy) // it carries the mark
			s.mark(ended(live("a", 14), Deleted))
		},
		"what it created was replaced": func(s story) {
			s.do(a, create)
			s.meets(a2, destroy, ErrForeign)
			s.mark(created(live("a", 2)))
			s.do(a2, destroy) // a human mended it
			s.mark(ended(created(live("a", 2)), Deleted))
		},
		"what it created was replaced, and the create asks again": func(s story) {
			s.do(a, create)
			s.meets(a, create, ErrForeign)
			s.meets(a2, create, ErrForeign)
			s.mark(created(live("a", 2))) // as Foreign, the delete would end in success
			s.meets(a3, destroy, ErrForeign)
			s.mark(created(live("a", 3)))
		},
		"what it adopted was replaced": func(s story) {
			s.do(a, imports)
			s.meets(a2, destroy, ErrForeign)
			s.mark(from(Adopted, live("a", 2)))
		},
		"an expand that meets it notes nothing": func(s story) {
			s.do(a, create)
			s.meets(a2, export, ErrForeign)
			s.mark(created(live("a", 2)))
		},
	})
}

// B-537, B-523: until an import succeeded its lifecycle owns nothing, whatever the
// controller believes; release ends it.
func TestStore_import(t *testing.T) {
	broken := errors.New("in use")
	a, a2, a3 := Token{"a", 1}, Token{"a", 2}, Token{"a", 3}
	pending := func(s story) {
		_, err := s.Do(s.t.Context(), volume, a, imports, func(context.Context) error {
			s.mark(from(Importing, live("a", 1)))
			return broken
		})
		if !errors.Is(err, broken) {
			s.t.Errorf("import = %v, want %v", err, broken)
		}
		s.mark(from(Importing, live("a", 1))) // B-526
	}
	tell(t, map[string]func(s story){
		"pending": func(s story) {
			pending(s)
			for _, op := range []Op{create, export, destroy} {
				s.refused(a2, op, ErrNotAdopted)
			}
			s.do(a2, deny)
			s.do(a3, release)
			s.mark(ended(from(Importing, live("a", 3)), Released))
		},
		"succeeds the second time": func(s story) {
			pending(s)
			s.do(a2, imports)
			s.mark(from(Adopted, live("a", 2)))
			s.do(a2, imports)
			s.do(a2, export)
			s.refused(a2, create, ErrForeign)
			s.do(a3, destroy)
			s.mark(ended(from(Adopted, live("a", 3)), Deleted))
		},
		"of what it made": func(s story) {
			s.do(a, create)
			s.refused(a2, imports, ErrForeign)
		},
	})
}
