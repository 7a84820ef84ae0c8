package fencing

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const volume = "vg0/pvc-1"

// The operations as the agent asks for them.
var (
	create  = Op{Class: Grant, Create: true}
	export  = Op{Class: Grant}
	deny    = Op{Class: Revoke}
	imports = Op{Class: Grant, Import: true}
	destroy = Op{Class: Destroy, Delete: true}
	release = Op{Class: Destroy, Release: true}
)

var allOps = map[string]Op{"create": create, "import": imports, "export": export, "deny": deny, "delete": destroy, "release": release}

func live(uid string, generation int64, retired ...Retired) *Mark {
	return &Mark{SchemaVersion: 1, Volume: volume, Owner: uid, Generation: generation, Retired: retired}
}

func ended(m *Mark, as Ending) *Mark { return m.with(func(m *Mark) { m.Ended = as }) }

func from(o Origin, m *Mark) *Mark { return m.with(func(m *Mark) { m.Origin = o }) }

func foreign(m *Mark) *Mark { return from(Foreign, m) }

func created(m *Mark) *Mark { return from(Created, m) }

func TestAdmit(t *testing.T) {
	type row struct {
		mark *Mark
		tok  Token
		ops  []string // empty: all of them
		next *Mark
		want Decision
	}
	old := Retired{"old", Deleted}
	released := Retired{"gone", Released}
	first := live("a", 3)
	first.Volume = "" // Store.Do knows the volume
	tests := map[string]row{
		"B-161 no token":                          {mark: live("a", 3), want: RejectMissingToken},
		"B-161 empty UID":                         {mark: live("a", 3), tok: Token{"", 4}, want: RejectMissingToken},
		"B-161 no generation":                     {mark: nil, tok: Token{"a", 0}, want: RejectMissingToken},
		"B-163 retired":                           {mark: live("a", 3, old), tok: Token{"old", 9}, want: RejectRetired},
		"B-163 retired, owner ended":              {mark: ended(live("a", 3, old), Deleted), tok: Token{"old", 9}, want: RejectRetired},
		"B-163 released, then retired":            {mark: live("a", 3, released), tok: Token{"gone", 9}, ops: []string{"create", "import", "export", "deny", "delete"}, want: RejectRetired},
		"B-163 exception, release again":          {mark: live("a", 3, released), tok: Token{"gone", 2}, ops: []string{"release"}, want: AdmitTerminalRetry},
		"B-164 no mark":                           {mark: nil, tok: Token{"a", 3}, next: first, want: AdmitNewLifecycle},
		"B-165 grant after delete":                {mark: ended(live("a", 3), Deleted), tok: Token{"a", 3}, ops: []string{"create", "import", "export"}, want: RejectEnded},
		"B-165 grant after delete, advanced":      {mark: ended(live("a", 3), Deleted), tok: Token{"a", 4}, ops: []string{"create", "import", "export"}, want: RejectEnded},
		"B-165 grant after release":               {mark: ended(live("a", 3), Released), tok: Token{"a", 3}, ops: []string{"create", "import", "export"}, want: RejectEnded},
		"B-166 delete or unexport again":          {mark: ended(live("a", 3), Deleted), tok: Token{"a", 3}, ops: []string{"deny", "delete"}, want: AdmitTerminalRetry},
		"B-167 older generation after delete":     {mark: ended(live("a", 3), Deleted), tok: Token{"a", 2}, ops: []string{"deny", "delete"}, want: RejectEnded},
		"B-167 newer generation after delete":     {mark: ended(live("a", 3), Deleted), tok: Token{"a", 4}, ops: []string{"deny", "delete"}, want: RejectEnded},
		"B-167 release after delete":              {mark: ended(live("a", 3), Deleted), tok: Token{"a", 3}, ops: []string{"release"}, want: RejectEnded},
		"B-167 B-176 delete after release":        {mark: ended(live("a", 3), Released), tok: Token{"a", 3}, ops: []string{"deny", "delete"}, want: RejectEnded},
		"B-167 exception, release again":          {mark: ended(live("a", 3), Released), tok: Token{"a", 3}, ops: []string{"release"}, want: AdmitTerminalRetry},
		"B-167 exception, release again, advance": {mark: ended(live("a", 3), Released), tok: Token{"a", 5}, ops: []string{"release"}, want: AdmitTerminalRetry},
		"B-168 older generation":                  {mark: live("a", 3), tok: Token{"a", 2}, want: RejectSuperseded},
		"B-169 same generation":                   {mark: live("a", 3), tok: Token{"a", 3}, want: AdmitSameGeneration},
		"B-170 newer generation":                  {mark: live("a", 3, old), tok: Token{"a", 7}, next: live("a", 7, old), want: AdmitAdvance},
		"B-170 B-217 the foreign note stays":      {mark: foreign(live("a", 3)), tok: Token{"a", 4}, next: foreign(live("a", 4)), want: AdmitAdvance},
		"B-171 another owner":                     {mark: live("a", 3), tok: Token{"b", 9}, ops: []string{"create", "import", "export", "deny", "delete"}, want: RejectOtherOwner},
		"B-172 after delete":                      {mark: ended(live("a", 3, old), Deleted), tok: Token{"b", 1}, next: live("b", 1, old, Retired{"a", Deleted}), want: AdmitNewLifecycle},
		"B-172 after release":                     {mark: ended(live("a", 3), Released), tok: Token{"b", 1}, next: live("b", 1, Retired{"a", Released}), want: AdmitNewLifecycle},
		"B-172 B-217 a note ends with its life":   {mark: ended(foreign(live("a", 3)), Deleted), tok: Token{"b", 1}, next: live("b", 1, Retired{"a", Deleted}), want: AdmitNewLifecycle},
		"B-173 release by another":                {mark: live("a", 3), tok: Token{"b", 9}, ops: []string{"release"}, next: live("a", 3, Retired{"b", Released}), want: ReleaseOfOther},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for op := range opsNamed(tt.ops) {
				next, got := Admit(tt.mark, tt.tok, allOps[op])
				if got != tt.want {
					t.Errorf("Admit(%+v, %s, %s) = %q, want %q", tt.mark, tt.tok, op, got, tt.want)
				}
				if diff := cmp.Diff(tt.next, next); diff != "" {
					t.Errorf("Admit(%+v, %s, %s) mark (-want +got):\n%s", tt.mark, tt.tok, op, diff)
				}
			}
		})
	}
}

func opsNamed(names []string) map[string]Op {
	if len(names) == 0 {
		return allOps
	}
	ops := map[string]Op{}
	for _, n := range names {
		ops[n] = allOps[n]
	}
	return ops
}

// Whatever the mark, the token and the operation: a rejection writes nothing, a
// generation never falls within a life, no earlier life is forgotten, and no lifecycle
// that was retired or ended comes back (N-4, N-6).
func TestAdmit_invariants(t *testing.T) {
	for _, mark := range someMarks() {
		for _, tok := range []Token{{}, {"a", 0}, {"a", 1}, {"a", 2}, {"a", 3}, {"b", 1}, {"b", 9}, {"old", 9}} {
			for name, op := range allOps {
				before := fmt.Sprintf("%+v", mark)
				next, d := Admit(mark, tok, op)
				if after := fmt.Sprintf("%+v", mark); after != before {
					t.Fatalf("Admit(%s, %s, %s) changed the mark it was given: %s", before, tok, name, after)
				}
				if err := invariant(mark, tok, next, d); err != nil {
					t.Errorf("Admit(%s, %s, %s) = %+v, %q: %v", before, tok, name, next, d, err)
				}
			}
		}
	}
}

func someMarks() []*Mark {
	marks := []*Mark{nil}
	for _, retired := range [][]Retired{nil, {{"old", Deleted}}, {{"old", Released}}} {
		for _, end := range []Ending{Live, Deleted, Released} {
			m := ended(live("a", 2, retired...), end)
			marks = append(marks, m, created(m), foreign(m), from(Importing, m), from(Adopted, m))
		}
	}
	return marks
}

func invariant(mark *Mark, tok Token, next *Mark, d Decision) error {
	switch {
	case (d.Rejected() || d == AdmitTerminalRetry || d == AdmitSameGeneration) && next != nil:
		return fmt.Errorf("writes a mark")
	case d.runs() && mark != nil && mark.Owner == tok.UID && (mark.Ended != Live || tok.Generation < mark.Generation):
		return fmt.Errorf("runs for a past generation or life")
	case d.runs() && mark != nil && mark.Owner != tok.UID && mark.Ended == Live:
		return fmt.Errorf("runs against a live owner")
	case next == nil:
		return nil
	}
	check := *next
	check.Volume = volume
	if err := check.check(volume); err != nil {
		return err
	}
	if mark == nil {
		return nil
	}
	if len(next.Retired) < len(mark.Retired) || !slices.Equal(next.Retired[:len(mark.Retired)], mark.Retired) {
		return fmt.Errorf("forgets a retired life")
	}
	if next.Owner == mark.Owner && next.Generation < mark.Generation {
		return fmt.Errorf("lowers the generation")
	}
	return nil
}
