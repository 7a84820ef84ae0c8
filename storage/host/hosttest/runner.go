// Package hosttest helps tests stand on a machine: a scripted Runner for tests without
// one, and for kernel tests the modules, disks and clean exits they need.
//
//	PILLAR_LAB=1       set in a lab guest: what is missing fails instead of skipping
//	PILLAR_LAB_DISKS   spare block devices there, by comma: /dev/ubdb,/dev/ubdc
package hosttest

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pillar-csi/pillar/storage/host"
)

// Step is one program run: what must be asked, and the answer.
type Step struct {
	Argv   []string // program name and arguments, exactly
	Stdout string
	Stderr string // of a failed run
	Exit   int    // not 0: the answer is a *host.ExitError
	Err    error  // answered as it is: a program that hung or could not start
}

// Runner is a host.Runner that plays a script.
type Runner struct {
	t     testing.TB
	mu    sync.Mutex
	steps []Step
	calls [][]string
}

var _ host.Runner = (*Runner)(nil)

// Script answers a Runner that expects exactly these steps in this order. The test fails
// at the first other call, and at its end if steps are left.
func Script(t testing.TB, steps ...Step) *Runner {
	r := &Runner{t: t, steps: steps}
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.steps {
			t.Errorf("never ran: %s", strings.Join(s.Argv, " "))
		}
	})
	return r
}

// Run implements host.Runner. An ended context is answered like a killed program.
func (r *Runner) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	argv := append([]string{filepath.Base(name)}, args...)
	r.calls = append(r.calls, argv)
	if len(r.steps) == 0 {
		r.t.Fatalf("unexpected run: %s", strings.Join(argv, " "))
	}
	step := r.steps[0]
	if !slices.Equal(argv, step.Argv) {
		r.t.Fatalf("unexpected run:\n got %q\nwant %q", argv, step.Argv)
	}
	r.steps = r.steps[1:]
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case step.Err != nil:
		return nil, step.Err
	case step.Exit != 0:
		return []byte(step.Stdout), &host.ExitError{Argv: argv, Code: step.Exit, Stderr: step.Stderr}
	default:
		return []byte(step.Stdout), nil
	}
}

// Calls answers the argument vectors run so far.
func (r *Runner) Calls() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.calls)
}
