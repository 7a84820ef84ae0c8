package agent

import (
	"context"

	"github.com/pillar-csi/pillar/fencing"
)

// call is what the log line of a call says beyond its request.
type call struct {
	decision fencing.Decision
	changed  bool
}

type callKey struct{}

func withCall(ctx context.Context) (context.Context, *call) {
	c := new(call)
	return context.WithValue(ctx, callKey{}, c), c
}

// changed tells the log that the call of ctx did something.
func changed(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.changed = true
	}
}

// fence is the one way of this process to a change.
type fence struct {
	store *fencing.Store
}

// Do runs act under the volume's lock if the token admits it, and notes the decision for
// the log.
func (f fence) Do(ctx context.Context, volume string, tok fencing.Token, op fencing.Op, act func(context.Context) error) error {
	d, err := f.store.Do(ctx, volume, tok, op, act)
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.decision = d
		c.changed = c.changed || d == fencing.AdmitNewLifecycle || d == fencing.AdmitAdvance ||
			op.Class == fencing.Destroy && d == fencing.AdmitSameGeneration
	}
	return err
}
