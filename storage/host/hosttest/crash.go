package hosttest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pillar-csi/pillar/storage/host/crashpoint"
)

// childEnv names the test whose operation this process is to run and be killed in.
const childEnv = "PILLAR_CRASH_CHILD"

// bothEnv asks for a kill on both sides of every effect.
const bothEnv = "PILLAR_CRASH_BOTH"

// EachCrash runs op in a child process once for every effect it has, kills the child just
// before it, and calls check after each: what a new process then finds, and whether the same
// operation, run again, converges. check leaves things as op found them. The last check
// follows an op that was left alone.
//
// A kill just after an effect leaves the machine as the kill before the next one does, and
// the last one as the op that was left alone, so those are walked only with
// PILLAR_CRASH_BOTH=1.
//
// The child is this test binary, running the calling test from its top: what a child must
// not do again stands under !InChild. Binaries without the build tag
// crashpoints skip it, in the lab they fail.
func EachCrash(t *testing.T, op func() error, check func(t *testing.T)) {
	t.Helper()
	if InChild(t) {
		if err := op(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	if !crashpoint.Enabled {
		if InLab() {
			t.Fatal("built without -tags crashpoints: nothing would be killed")
		}
		t.Skip("needs a binary built with -tags crashpoints")
	}
	sides := []string{"before"}
	if os.Getenv(bothEnv) == "1" {
		sides = append(sides, "after")
	}
	for n := 1; ; n++ {
		for _, side := range sides {
			at := fmt.Sprintf("%s:%d", side, n)
			killed, output := crash(t, at)
			what := "killed " + side + " effect"
			if !killed {
				what = "left alone"
			}
			if ok := t.Run(fmt.Sprintf("%s %d", what, n), check); !ok {
				t.Fatalf("%s\n%s", at, output)
			}
			if !killed {
				return
			}
		}
	}
}

// InChild tells whether this process was started to be killed.
func InChild(t *testing.T) bool { return os.Getenv(childEnv) == t.Name() }

// crash runs the child and tells whether it died at the crash point.
func crash(t *testing.T, at string) (killed bool, output []byte) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.count=1", "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
	cmd.Env = append(os.Environ(), childEnv+"="+t.Name(), "PILLAR_CRASH_AT="+at)
	output, err := cmd.CombinedOutput()
	if err == nil {
		return false, output
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true, output
	}
	t.Fatalf("the operation with a crash %s = %v\n%s", at, err, output)
	return false, nil
}
