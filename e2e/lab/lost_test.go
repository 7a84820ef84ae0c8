//go:build lab

package lab_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab"
)

// spin keeps every processor of a guest from everything else: its agent, too. Newer kernels
// reserve a share for programs that are not real-time, twice.
const spin = `echo -1 >/proc/sys/kernel/sched_rt_runtime_us; cp /bin/bash /run/spinner
mount -t debugfs debugfs /run/debug -o X-mount.mkdir; for f in /run/debug/sched/fair_server/cpu*/runtime; do echo 0 >$f; done
for cpu in $(seq $(nproc)); do chrt -f 99 /run/spinner -c 'while :; do :; done' & done; wait`

// TestGuest_lost: a guest that does not answer any more is given up, and the error says whether
// it waits or spins. A kernel that still can writes what it does on the console.
func TestGuest_lost(t *testing.T) {
	for name, test := range map[string]struct {
		script, says, console string
		stop                  bool
	}{
		"stopped":  {script: "sleep 1000", stop: true, says: `in state T and used 0\.0\d s of CPU.*its kernel does not say`},
		"spinning": {script: spin, says: `in state [RS] and used (0\.[1-9]|[12]\.)\d+ s of CPU.*is on its console`, console: `(?i)comm: spinner`},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, l := openConfig(t, lab.Config{Patience: 8 * time.Second})
			g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11"})
			if test.stop {
				time.AfterFunc(time.Second, func() { signal(t, g, syscall.SIGSTOP) })
			}
			out, err := g.Exec(ctx, test.script)
			if !errors.Is(err, lab.ErrSilent) || !regexp.MustCompile(test.says).MatchString(err.Error()) {
				t.Errorf("Exec() = %q, %v, want ErrSilent and %s", out, err, test.says)
			}
			t.Log(err)
			console, err := os.ReadFile(g.Console())
			if err != nil || !regexp.MustCompile(test.console).Match(console) {
				t.Errorf("console: %v, want %s in\n%s", err, test.console, console)
			}
		})
	}
}

// signal sends a signal to all processes of a guest: those with a file of it as argument.
func signal(t *testing.T, g *lab.Guest, sig syscall.Signal) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Error(err)
	}
	found := false
	for _, file := range files {
		cmdline, _ := os.ReadFile(file) // it may be gone
		if !bytes.Contains(cmdline, []byte(filepath.Dir(g.Console()))) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil {
			err = syscall.Kill(pid, sig)
		}
		found = found || err == nil
	}
	if !found {
		t.Errorf("no process of %s found", g.Spec.Name)
	}
}
