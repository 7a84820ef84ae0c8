package agent

import (
	"cmp"
	"context"
	"sync"

	"github.com/pillar-csi/pillar/fencing"
)

// call is what the log line of a call says beyond its request. A request about many volumes
// works on several at once.
type call struct {
	mu       sync.Mutex
	decision fencing.Decision
	changed  bool
}

func (c *call) note(d fencing.Decision, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.decision, c.changed = cmp.Or(d, c.decision), c.changed || changed
}

func (c *call) noted() (d fencing.Decision, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.decision, c.changed
}

type callKey struct{}

func withCall(ctx context.Context) (context.Context, *call) {
	c := new(call)
	return context.WithValue(ctx, callKey{}, c), c
}

// changed tells the log that the call of ctx did something.
func changed(ctx context.Context) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.note("", true)
	}
}

// fence is the one way of this process to a change.
type fence struct {
	*fencing.Store
}

// Do runs act under the volume's lock if the token admits it, and notes the decision for
// the log.
func (f fence) Do(ctx context.Context, volume string, tok fencing.Token, op fencing.Op, act func(context.Context) error) error {
	d, err := f.Store.Do(ctx, volume, tok, op, act)
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.note(d, d == fencing.AdmitNewLifecycle || d == fencing.AdmitAdvance ||
			op.Class == fencing.Destroy && d == fencing.AdmitSameGeneration)
	}
	return err
}
