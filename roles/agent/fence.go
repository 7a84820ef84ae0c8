package agent

import (
	"context"
	"time"

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

// actLimit bounds a change whose caller set no deadline.
const actLimit = 60 * time.Second

// Do runs act under the volume's lock if the token admits it, and notes the decision for
// the log. A caller that goes away does not stop act half-way: only its deadline does,
// because killing LVM between two ioctls costs more than finishing.
func (f fence) Do(ctx context.Context, volume string, tok fencing.Token, op fencing.Op, act func(context.Context) error) error {
	d, err := f.store.Do(ctx, volume, tok, op, func(ctx context.Context) error {
		deadline, ok := ctx.Deadline()
		if !ok {
			deadline = time.Now().Add(actLimit)
		}
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
		defer cancel()
		return act(ctx)
	})
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.decision = d
		c.changed = c.changed || d == fencing.AdmitNewLifecycle || d == fencing.AdmitAdvance ||
			op.Class == fencing.Destroy && d == fencing.AdmitSameGeneration
	}
	return err
}
