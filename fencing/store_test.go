package fencing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "generations"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustNotRun(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the effect ran")
		return nil
	}
}

func nothing(context.Context) error { return nil }

// do runs one operation that must be admitted.
func do(t *testing.T, s *Store, tok Token, op Op) {
	t.Helper()
	if err := s.Check(volume, tok, op); err != nil {
		t.Errorf("Check(%s) = %v, want what Do will answer", tok, err)
	}
	if d, err := s.Do(t.Context(), volume, tok, op, nothing); err != nil {
		t.Fatalf("Do(%s) = %q, %v", tok, d, err)
	}
}

func wantMark(t *testing.T, s *Store, want *Mark) {
	t.Helper()
	got, err := s.Mark(volume)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Mark = %v (-want +got):\n%s", err, diff)
	}
}

// Appendix F: one life, its late requests, and the next life of the same name.
func TestStore_life(t *testing.T) {
	s := open(t)
	reject := func(tok Token, op Op, want Decision) {
		t.Helper()
		check := s.Check(volume, tok, op)
		d, err := s.Do(t.Context(), volume, tok, op, mustNotRun(t))
		var r *Rejection
		if diff := cmp.Diff(fmt.Sprint(err), fmt.Sprint(check)); diff != "" {
			t.Errorf("Check(%s) is not Do's answer (-Do +Check):\n%s", tok, diff)
		}
		if d != want || !errors.Is(err, ErrStale) || !errors.As(err, &r) || r.Decision != want {
			t.Errorf("Do(%s) = %q, %v, want rejection %q", tok, d, err, want)
		}
	}
	do(t, s, Token{"a", 1}, create)
	do(t, s, Token{"a", 2}, export)
	reject(Token{"a", 1}, create, RejectSuperseded) // N-10
	do(t, s, Token{"a", 4}, deny)
	reject(Token{"a", 3}, export, RejectSuperseded) // N-3, N-5
	do(t, s, Token{"a", 14}, deny)
	do(t, s, Token{"a", 14}, destroy)
	wantMark(t, s, ended(created(live("a", 14)), Deleted))

	for _, op := range []Op{deny, destroy} { // N-51: the controller crashed and asks again
		if d, err := s.Do(t.Context(), volume, Token{"a", 14}, op, mustNotRun(t)); d != AdmitTerminalRetry || err != nil {
			t.Errorf("Do again = %q, %v, want %q", d, err, AdmitTerminalRetry)
		}
	}
	do(t, s, Token{"b", 1}, create)
	wantMark(t, s, created(live("b", 1, Retired{"a", Deleted})))
	for _, op := range []Op{create, export, deny, destroy} { // N-4
		reject(Token{"a", 15}, op, RejectRetired)
	}
	reject(Token{}, destroy, RejectMissingToken)
	reject(Token{"c", 1}, destroy, RejectOtherOwner)
	wantMark(t, s, created(live("b", 1, Retired{"a", Deleted})))
}

// B-156: the mark is on disk before the effect, and stays when the effect fails (B-152).
func TestStore_markBeforeEffect(t *testing.T) {
	s := open(t)
	broken := errors.New("lvcreate broke off")
	d, err := s.Do(t.Context(), volume, Token{"a", 1}, create, func(context.Context) error {
		wantMark(t, s, created(live("a", 1)))
		return broken
	})
	if d != AdmitNewLifecycle || !errors.Is(err, broken) {
		t.Errorf("Do = %q, %v, want %v", d, err, broken)
	}
	d, err = s.Do(t.Context(), volume, Token{"a", 1}, create, nothing)
	if d != AdmitSameGeneration || err != nil {
		t.Errorf("retry = %q, %v", d, err)
	}
}

// B-175: a delete that failed has not ended the life.
func TestStore_failedDelete(t *testing.T) {
	s := open(t)
	busy := errors.New("busy")
	do(t, s, Token{"a", 1}, create)
	if _, err := s.Do(t.Context(), volume, Token{"a", 2}, destroy, func(context.Context) error { return busy }); !errors.Is(err, busy) {
		t.Errorf("Do = %v, want %v", err, busy)
	}
	wantMark(t, s, created(live("a", 2)))
}

// B-174: somebody changed the mark while the backend was being deleted.
func TestStore_markChanged(t *testing.T) {
	s := open(t)
	do(t, s, Token{"a", 1}, create)
	d, err := s.Do(t.Context(), volume, Token{"a", 2}, destroy, func(context.Context) error {
		return s.write(live("b", 1, Retired{"a", Deleted}))
	})
	if d != RejectMarkChanged || !errors.Is(err, ErrStale) {
		t.Errorf("Do = %q, %v, want %q", d, err, RejectMarkChanged)
	}
	wantMark(t, s, live("b", 1, Retired{"a", Deleted}))
}

// B-157: an equal token does not rewrite the mark.
func TestStore_sameGenerationWritesNothing(t *testing.T) {
	s := open(t)
	do(t, s, Token{"a", 1}, create)
	path := filepath.Join(s.dir, markName(volume))
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, Token{"a", 1}, create)
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the mark was replaced: %v", err)
	}
}

// B-176: a released life can never act again.
func TestStore_release(t *testing.T) {
	s := open(t)
	do(t, s, Token{"a", 1}, Op{Class: Grant})
	do(t, s, Token{"a", 2}, release)
	if d, err := s.Do(t.Context(), volume, Token{"a", 2}, release, mustNotRun(t)); d != AdmitTerminalRetry || err != nil {
		t.Errorf("release again = %q, %v", d, err)
	}
	if _, err := s.Do(t.Context(), volume, Token{"a", 3}, destroy, mustNotRun(t)); !errors.Is(err, ErrStale) {
		t.Errorf("delete after release = %v, want ErrStale", err)
	}
	do(t, s, Token{"b", 1}, Op{Class: Grant})
	if d, err := s.Do(t.Context(), volume, Token{"c", 1}, release, mustNotRun(t)); d != ReleaseOfOther || err != nil {
		t.Errorf("release by another = %q, %v", d, err) // B-173
	}
	wantMark(t, s, live("b", 1, Retired{"a", Released}, Retired{"c", Released}))
}

func TestStore_survivesReopen(t *testing.T) {
	s := open(t)
	do(t, s, Token{"a", 5}, create)
	again, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	wantMark(t, again, created(live("a", 5)))
}

// B-203: two IDs never share a mark.
func TestStore_volumesApart(t *testing.T) {
	s := open(t)
	for i, id := range []string{"a/b", "a.b", "a%2Fb", "A/b"} {
		d, err := s.Do(t.Context(), id, Token{fmt.Sprint("uid", i), 1}, create, nothing)
		if d != AdmitNewLifecycle || err != nil {
			t.Errorf("Do(%s) = %q, %v, want %q", id, d, err, AdmitNewLifecycle)
		}
	}
}
