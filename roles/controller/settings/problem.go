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

func (e *FieldError) Error() string {
	s := e.Path
	if e.Key != "" {
		s = strings.TrimSuffix(e.Key+": "+e.Path, " ")
	}
	s += " " + e.Reason()
	if e.Fix != "" {
		s += "; " + e.Fix
	}
	return s
}

// Reason is what is wrong with the value, without place and remedy.
func (e *FieldError) Reason() string {
	if e.Value == "" {
		return e.Why
	}
	return e.Why + " (got " + clip(e.Value) + ")"
}

// maxShown is how many bytes of a value a message shows.
const maxShown = 100

func clip(s string) string {
	if len(s) > maxShown {
		s = s[:maxShown] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}

// Problems are all settings of one request nobody could act on, in a fixed order.
type Problems []*FieldError

func (p Problems) Error() string {
	if len(p) == 1 {
		return p[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d settings are refused:", len(p))
	for i, e := range p {
		fmt.Fprintf(&b, " (%d) %s", i+1, e)
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
