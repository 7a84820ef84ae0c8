package fencing

import (
	"context"
	"errors"
	"testing"
)

// probing is a create whose backend is there or not.
func probing(exists bool, err error) Op {
	op := create
	op.Probe = func(context.Context) (bool, error) { return exists, err }
	return op
}

func TestStore_foreign(t *testing.T) {
	taken, free := probing(true, nil), probing(false, nil)
	refused := func(t *testing.T, s *Store, tok Token, op Op) {
		t.Helper()
		if _, err := s.Do(t.Context(), volume, tok, op, mustNotRun(t)); !errors.Is(err, ErrForeign) {
			t.Errorf("Do(%s) = %v, want ErrForeign", tok, err)
		}
	}
	tests := map[string]func(t *testing.T, s *Store){
		"B-217 a taken name is refused and noted in the first mark": func(t *testing.T, s *Store) {
			refused(t, s, Token{"a", 1}, taken)
			wantMark(t, s, foreign(live("a", 1)))
			refused(t, s, Token{"a", 1}, taken)
			refused(t, s, Token{"a", 2}, taken)
			refused(t, s, Token{"a", 3}, export)
			wantMark(t, s, foreign(live("a", 3)))
		},
		"N-52 delete ends the life and touches nothing": func(t *testing.T, s *Store) {
			refused(t, s, Token{"a", 1}, taken)
			for _, op := range []Op{deny, destroy} {
				if d, err := s.Do(t.Context(), volume, Token{"a", 2}, op, mustNotRun(t)); err != nil || d.Rejected() {
					t.Errorf("Do = %q, %v", d, err)
				}
			}
			wantMark(t, s, ended(foreign(live("a", 2)), Deleted))
			refused(t, s, Token{"b", 1}, taken)
			wantMark(t, s, foreign(live("b", 1, Retired{"a", Deleted})))
		},
		"B-217 the object went away": func(t *testing.T, s *Store) {
			refused(t, s, Token{"a", 1}, taken)
			do(t, s, Token{"a", 1}, free)
			wantMark(t, s, live("a", 1))
			do(t, s, Token{"a", 1}, taken) // now it is ours: the create of the same token
		},
		"a free name is never asked for twice": func(t *testing.T, s *Store) {
			do(t, s, Token{"a", 1}, free)
			do(t, s, Token{"a", 1}, taken)
			do(t, s, Token{"a", 2}, taken)
			wantMark(t, s, live("a", 2))
		},
		"B-204 an unknown answer writes nothing": func(t *testing.T, s *Store) {
			hung := errors.New("lvs hung")
			if _, err := s.Do(t.Context(), volume, Token{"a", 1}, probing(false, hung), mustNotRun(t)); !errors.Is(err, hung) {
				t.Errorf("Do = %v, want %v", err, hung)
			}
			wantMark(t, s, nil)
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}
