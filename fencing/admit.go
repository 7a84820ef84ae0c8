package fencing

import "context"

// Op is an operation that asks to be admitted. At most one of Create, Import, Delete and
// Release is set.
type Op struct {
	Class   Class
	Create  bool // makes the backend: may find that the name is taken (B-217)
	Import  bool // adopts a backend: until its success the lifecycle owns nothing (B-537)
	Delete  bool // removes the backend: its success ends the lifecycle as deleted
	Release bool // gives an adopted backend up: its success ends the lifecycle as released

	// Taken tells whether a Create's name is taken by something its lifecycle did not make.
	// It runs under the lock, for the first Create of a lifecycle and while the name was
	// taken; an error fails the operation with nothing written.
	Taken func(ctx context.Context) (bool, error)
}

// ending is what a success of the operation writes; Live is nothing.
func (o Op) ending() Ending {
	switch {
	case o.Delete:
		return Deleted
	case o.Release:
		return Released
	default:
		return Live
	}
}

// Admit is the decision table of block.md 3.3, from top to bottom. mark is nil for a
// volume never seen; next is the mark that must be durable before the operation begins,
// nil when there is nothing to write. B-162 and B-174 need a disk and live in Store.Do.
func Admit(mark *Mark, tok Token, op Op) (next *Mark, d Decision) {
	if tok.missing() {
		return nil, RejectMissingToken // B-161
	}
	if old, ok := mark.retirement(tok.UID); ok {
		if op.Release && old.Ended == Released {
			return nil, AdmitTerminalRetry // B-163, exception
		}
		return nil, RejectRetired // B-163
	}
	switch {
	case mark == nil:
		return &Mark{SchemaVersion: schemaVersion, Owner: tok.UID, Generation: tok.Generation}, AdmitNewLifecycle // B-164
	case tok.UID != mark.Owner:
		return admitOther(mark, tok, op)
	case mark.Ended != Live:
		return nil, admitEnded(mark, tok, op)
	case tok.Generation < mark.Generation:
		return nil, RejectSuperseded // B-168
	case tok.Generation == mark.Generation:
		return nil, AdmitSameGeneration // B-169
	default:
		return mark.with(func(m *Mark) { m.Generation = tok.Generation }), AdmitAdvance // B-170
	}
}

// admitEnded: the owner comes back after its end.
func admitEnded(mark *Mark, tok Token, op Op) Decision {
	switch {
	case op.Release && mark.Ended == Released:
		return AdmitTerminalRetry // B-167, exception
	case op.Class == Grant || op.Release:
		return RejectEnded // B-165, B-167
	case mark.Ended == Deleted && tok.Generation == mark.Generation:
		return AdmitTerminalRetry // B-166
	default:
		return RejectEnded // B-167
	}
}

// admitOther: a lifecycle that is neither the owner nor retired.
func admitOther(mark *Mark, tok Token, op Op) (*Mark, Decision) {
	switch {
	case mark.Ended != Live: // B-172
		return mark.with(func(m *Mark) {
			m.Retired = append(m.Retired, Retired{mark.Owner, mark.Ended})
			m.Owner, m.Generation, m.Ended, m.Origin = tok.UID, tok.Generation, Live, Unknown
		}), AdmitNewLifecycle
	case op.Release: // B-173
		return mark.with(func(m *Mark) { m.Retired = append(m.Retired, Retired{tok.UID, Released}) }), ReleaseOfOther
	default:
		return nil, RejectOtherOwner // B-171
	}
}

// permit tells whether an admitted operation may touch a backend of that origin, and if not,
// why: nil with false is an operation that has nothing to do and succeeds.
func permit(origin Origin, op Op) (runs bool, refusal error) {
	switch {
	case origin == Importing && (op.Class == Grant && !op.Import || op.Delete):
		return false, ErrNotAdopted // B-537
	case origin == Foreign && op.Class == Grant,
		origin == Adopted && op.Create,
		origin == Created && op.Import:
		return false, ErrForeign
	default:
		return origin != Foreign, nil // B-217: nothing of it is this lifecycle's to take away
	}
}
