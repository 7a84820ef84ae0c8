package node

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// crashWorker is a worker whose child does not clear or export anything again.
func crashWorker(t *testing.T) *worker {
	need(t)
	if hosttest.InChild(t) {
		return newWorker(t, "")
	}
	return newWorker(t, hosttest.Disk(t, 0))
}

// TestKernel_CrashStage kills the node plugin before and after every effect of stage and
// publish. After a death before an effect the calls are retried and must converge. After
// one behind it, which the kernel cannot tell from one before the next, nobody retries.
// Either way unpublish and unstage must leave nothing.
func TestKernel_CrashStage(t *testing.T) {
	w := crashWorker(t)
	operation := func() error { return errors.Join(w.stage(writer), w.publish(writer, "pod", true)) }
	hosttest.EachCrash(t, operation, func(t *testing.T) {
		w := &worker{t: t, ctx: t.Context(), host: w.host, target: w.target, backer: w.backer}
		if !strings.Contains(t.Name(), "killed_after") {
			w.must(operation())
			if err := os.WriteFile(w.podPath("pod/x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
				t.Errorf("write through the read-only target = %v, want EROFS", err)
			}
			w.must(os.WriteFile(w.stagingPath()+"/x", []byte("x"), 0o600))
		}
		w.must(w.unpublish("pod"))
		w.must(w.unstage())
		w.nothingLeft()
		w.overwrite(0, make([]byte, mib)) // blank for the next
	})
}

// TestKernel_CrashUnstage kills the node plugin before and after every effect of the way
// back.
func TestKernel_CrashUnstage(t *testing.T) {
	w := crashWorker(t)
	operation := func() error { return errors.Join(w.unpublish("pod"), w.unstage()) }
	staged := func(w *worker) { w.must(errors.Join(w.stage(writer), w.publish(writer, "pod", false))) }
	if !hosttest.InChild(t) {
		staged(w)
	}
	hosttest.EachCrash(t, operation, func(t *testing.T) {
		w := &worker{t: t, ctx: t.Context(), host: w.host, target: w.target, backer: w.backer}
		w.must(operation())
		w.nothingLeft()
		staged(w)
	})
	w.must(operation())
}
