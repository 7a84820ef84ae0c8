package node

import (
	"context"
	"fmt"
	"time"
)

// undoWait bounds taking back a failed stage. It outlives the call's own deadline, which
// is often what failed it; an unmount and a disconnect of a living target take seconds.
const undoWait = 20 * time.Second

// undo is what a call has done and can take back.
type undo []struct {
	what string
	do   func(context.Context) error
}

func (u *undo) add(what string, do func(context.Context) error) {
	*u = append(*u, struct {
		what string
		do   func(context.Context) error
	}{what, do})
}

// run takes back in reverse. The first step that fails ends it: what is below still has
// something standing on it (block.md B-326). The answer is the reason, with that failure
// in its text.
func (u *undo) run(ctx context.Context, reason error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWait)
	defer cancel()
	for i := len(*u) - 1; i >= 0; i-- {
		if err := (*u)[i].do(ctx); err != nil {
			return fmt.Errorf("%w; then %s: %v", reason, (*u)[i].what, err)
		}
	}
	return reason
}
