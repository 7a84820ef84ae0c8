package fencing

import (
	"errors"
	"strings"
	"testing"
)

// The whole of block.md 3.3: every state of a mark, every kind of token, every operation.
// "deleted" and "released" are how the owner's life ended; the mark has retired lives that
// ended either way.
const matrix = `
mark      token      create  import  export  deny    delete  release
none      no-uid     miss    miss    miss    miss    miss    miss
none      no-gen     miss    miss    miss    miss    miss    miss
none      any        new     new     new     new     new     new
live      no-uid     miss    miss    miss    miss    miss    miss
live      no-gen     miss    miss    miss    miss    miss    miss
live      retired    ret     ret     ret     ret     ret     ret
live      gaveup     ret     ret     ret     ret     ret     done
live      lower      old     old     old     old     old     old
live      equal      same    same    same    same    same    same
live      higher     up      up      up      up      up      up
live      other      other   other   other   other   other   note
deleted   no-uid     miss    miss    miss    miss    miss    miss
deleted   no-gen     miss    miss    miss    miss    miss    miss
deleted   retired    ret     ret     ret     ret     ret     ret
deleted   gaveup     ret     ret     ret     ret     ret     done
deleted   lower      end     end     end     end     end     end
deleted   equal      end     end     end     done    done    end
deleted   higher     end     end     end     end     end     end
deleted   other      new     new     new     new     new     new
released  no-uid     miss    miss    miss    miss    miss    miss
released  no-gen     miss    miss    miss    miss    miss    miss
released  retired    ret     ret     ret     ret     ret     ret
released  gaveup     ret     ret     ret     ret     ret     done
released  lower      end     end     end     end     end     done
released  equal      end     end     end     end     end     done
released  higher     end     end     end     end     end     done
released  other      new     new     new     new     new     new
`

var decisions = map[string]Decision{
	"miss": RejectMissingToken, "ret": RejectRetired, "other": RejectOtherOwner, "end": RejectEnded, "old": RejectSuperseded,
	"new": AdmitNewLifecycle, "up": AdmitAdvance, "same": AdmitSameGeneration, "done": AdmitTerminalRetry, "note": ReleaseOfOther,
}

var tokens = map[string]Token{
	"no-uid": {"", 5}, "no-gen": {"a", 0}, "any": {"a", 5}, "retired": {"old", 9}, "gaveup": {"gone", 9},
	"lower": {"a", 4}, "equal": {"a", 5}, "higher": {"a", 6}, "other": {"b", 9},
}

var endings = map[string]Ending{"live": Live, "deleted": Deleted, "released": Released}

var origins = []Origin{Unknown, Created, Foreign, Importing, Adopted}

func TestAdmit_matrix(t *testing.T) {
	for row := range rows(t, matrix) {
		marks := []*Mark{nil}
		if row["mark"] != "none" {
			marks = nil
			for _, o := range origins { // which decides nothing here
				marks = append(marks, from(o, ended(live("a", 5, Retired{"old", Deleted}, Retired{"gone", Released}), endings[row["mark"]])))
			}
		}
		for op, o := range allOps {
			for _, mark := range marks {
				_, got := Admit(mark, tokens[row["token"]], o)
				if want, ok := decisions[row[op]]; !ok || got != want {
					t.Errorf("mark %s, token %s: %s of %+v = %q, want %s", row["mark"], row["token"], op, mark, got, row[op])
				}
			}
		}
	}
}

// What an admitted operation may do to a backend, by how its lifecycle came to it.
const permits = `
origin     create   import   export   deny   delete   release
-          run      run      run      run    run      run
created    run      foreign  run      run    run      run
foreign    foreign  foreign  foreign  idle   idle     idle
importing  pending  run      pending  run    pending  run
adopted    foreign  run      run      run    run      run
`

func TestPermit_matrix(t *testing.T) {
	said := map[string]error{"foreign": ErrForeign, "pending": ErrNotAdopted, "run": nil, "idle": nil}
	seen := 0
	for row := range rows(t, permits) {
		seen++
		origin := Origin(strings.Trim(row["origin"], "-"))
		for op, o := range allOps {
			runs, err := permit(origin, o)
			want, ok := said[row[op]]
			if !ok || !errors.Is(err, want) || runs != (row[op] == "run") {
				t.Errorf("permit(%q, %s) = %v, %v, want %s", origin, op, runs, err, row[op])
			}
		}
	}
	if seen != len(origins) {
		t.Errorf("%d origins in the table, want %d", seen, len(origins))
	}
}

// rows answers a table's rows by column; each has all of them.
func rows(t *testing.T, table string) func(yield func(map[string]string) bool) {
	return func(yield func(map[string]string) bool) {
		var head []string
		for line := range strings.Lines(strings.TrimSpace(table)) {
			cells := strings.Fields(line)
			if head == nil {
				head = cells
				continue
			}
			row := map[string]string{}
			for i, cell := range cells {
				row[head[i]] = cell
			}
			if len(row) != len(head) {
				t.Fatalf("row %q, want %d cells", line, len(head))
			}
			if !yield(row) {
				return
			}
		}
	}
}
