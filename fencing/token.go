// Package fencing keeps requests of the past from changing the present (block.md 3). Every
// agent call that changes something carries a Token; the Store compares it with the
// volume's Mark, makes the new mark durable, and only then lets the change begin, all
// under one lock per volume.
//
//	<state directory>/generations/
//	  <escaped agent volume ID>.json    one mark per volume, never deleted
//
// Admit is the decision table, a pure function. Store.Do is the only way to a change.
package fencing

import (
	"errors"
	"fmt"
)

// The kinds of failure a caller acts on.
var (
	// ErrStale is every rejection of a token; the error is a *Rejection.
	ErrStale = errors.New("stale fencing token")
	// ErrMark is a mark that cannot be read, trusted or written. Nothing is guessed from
	// it; recovery is manual (B-159).
	ErrMark = errors.New("fencing mark")
	// ErrForeign is a name taken by something the lifecycle did not make (B-217). An effect
	// answers it, too, when it finds that on the way.
	ErrForeign = errors.New("the name is taken by something this volume did not make")
	// ErrNotAdopted is a lifecycle whose import has not succeeded: it owns nothing (B-537).
	ErrNotAdopted = errors.New("the volume was never adopted")
)

// Token is the authority of one call: a lifecycle and the generation committed for the
// operation.
type Token struct {
	UID        string // of the PillarVolumeState
	Generation int64  // from 1
}

func (t Token) String() string { return fmt.Sprintf("%s/%d", t.UID, t.Generation) }

// missing: the first generation ever committed is 1, so 0 is a field nobody set.
func (t Token) missing() bool { return t.UID == "" || t.Generation < 1 }

// Class is what an operation does to a host's access (B-150).
type Class int

// The operation classes.
const (
	Grant   Class = iota + 1 // create, import, expand, export, allow, set local attach, reconcile
	Revoke                   // deny, unexport
	Destroy                  // delete, release
)

func (c Class) String() string {
	switch c {
	case Grant:
		return "grant"
	case Revoke:
		return "revoke"
	case Destroy:
		return "destroy"
	default:
		return fmt.Sprintf("class %d", int(c))
	}
}

// Decision is the outcome of the decision table, spelled as in the metric's label
// (deploy.md M7).
type Decision string

// The decisions.
const (
	AdmitNewLifecycle   Decision = "admit_new_lifecycle"
	AdmitAdvance        Decision = "admit_advance"
	AdmitSameGeneration Decision = "admit_same_generation"
	AdmitTerminalRetry  Decision = "admit_terminal_retry" // success without effect
	RejectMissingToken  Decision = "reject_missing_token"
	RejectRetired       Decision = "reject_retired"
	RejectOtherOwner    Decision = "reject_other_owner"
	RejectEnded         Decision = "reject_ended"
	RejectSuperseded    Decision = "reject_superseded"
	RejectMarkChanged   Decision = "reject_mark_changed"
	MarkIOError         Decision = "mark_io_error"
	// ReleaseOfOther is B-173, which has no label: a lifecycle that does not own the
	// volume gives it up. Recorded, nothing to do, not counted.
	ReleaseOfOther Decision = ""
)

// Rejected tells whether the operation may not run and must fail as ErrStale.
func (d Decision) Rejected() bool {
	switch d {
	case RejectMissingToken, RejectRetired, RejectOtherOwner, RejectEnded, RejectSuperseded, RejectMarkChanged:
		return true
	default:
		return false
	}
}

// runs tells whether the operation has an effect to make.
func (d Decision) runs() bool {
	return d == AdmitNewLifecycle || d == AdmitAdvance || d == AdmitSameGeneration
}

// Rejection is a token that was refused. It is an ErrStale.
type Rejection struct {
	Decision Decision
	Volume   string
	Token    Token
	Owner    Token // of the mark; empty: there is none
}

func (r *Rejection) Error() string {
	msg := fmt.Sprintf("%v: %s: token %s of volume %s", ErrStale, r.Decision, r.Token, r.Volume)
	if r.Owner.UID != "" {
		msg += fmt.Sprintf(", which is at %s", r.Owner)
	}
	return msg
}

func (r *Rejection) Unwrap() error { return ErrStale }
