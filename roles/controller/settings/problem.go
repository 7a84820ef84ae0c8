package settings

import (
	"fmt"
	"strings"
)

// FieldError is a setting nobody could act on. It says where, what was found, and what to
// write instead. Every one is InvalidArgument.
type FieldError struct {
	Key   string // annotation, parameter or object; empty in CheckClass and CheckStore
	Path  string // field inside of Key; empty: Key itself
	Value string // as found; empty: nothing worth showing
	Why   string
	Fix   string
}

// Bounds of messages in bytes. Authors of claims write what they show, and every one of them
// goes into an event at each attempt: etcd must not fill up with them.
const (
	maxShown   = 100  // of a value
	maxPath    = 200  // of a field's path
	maxProblem = 1024 // of one problem
	maxMessage = 4096 // of all
	maxListed  = 10   // problems
)

// Error is at most maxProblem bytes; what is wrong is cut before what to do.
func (e *FieldError) Error() string {
	s := Clip(e.Path, maxPath)
	if e.Key != "" {
		s = strings.TrimSuffix(e.Key+": "+s, " ")
	}
	fix := ""
	if e.Fix != "" {
		fix = Clip("; "+e.Fix, maxProblem/2)
	}
	return Clip(s+" "+e.Reason(), maxProblem-len(fix)) + fix
}

// Reason is what is wrong with the value, without place and remedy.
func (e *FieldError) Reason() string {
	if e.Value == "" {
		return e.Why
	}
	return e.Why + " (got " + Clip(e.Value, maxShown) + ")"
}

// Clip answers text of at most limit bytes that the API server takes: cut between two
// characters, which "..." tells, and with a question mark for what is no character.
func Clip(text string, limit int) string {
	const more = "..."
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len(more)], "") + more
}

// Problems are all settings of one request nobody could act on, in a fixed order.
type Problems []*FieldError

// Error names the first problems and how many more there are, in at most maxMessage bytes.
func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d settings are refused:", len(p))
	for i, e := range p {
		more := fmt.Sprintf("; and %d more", len(p)-i)
		next := fmt.Sprintf(" (%d) %s", i+1, e)
		if i == maxListed || b.Len()+len(next)+len(more) > maxMessage {
			b.WriteString(more)
			break
		}
		b.WriteString(next)
	}
	return b.String()
}

// Unwrap lets errors.As find the first FieldError.
func (p Problems) Unwrap() []error {
	all := make([]error, len(p))
	for i, e := range p {
		all[i] = e
	}
	return all
}

// err is nil if there are none.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// why is a refusal of another package without its kind, which every FieldError has.
func why(err, kind error) string {
	return strings.TrimSuffix(strings.TrimPrefix(err.Error(), kind.Error()+": "), ": "+kind.Error())
}
