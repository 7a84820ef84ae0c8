package hosttest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// spy is a testing.TB that keeps failures to itself.
type spy struct {
	testing.TB
	failed   []string
	cleanups []func()
}

type stopped struct{}

func (s *spy) Helper()                   {}
func (s *spy) Cleanup(f func())          { s.cleanups = append(s.cleanups, f) }
func (s *spy) Errorf(f string, a ...any) { s.failed = append(s.failed, f) }
func (s *spy) Fatalf(f string, a ...any) { s.failed = append(s.failed, f); panic(stopped{}) }
func (s *spy) Skip(a ...any)             { panic(stopped{}) }
func (s *spy) Skipf(f string, a ...any)  { panic(stopped{}) }
func (s *spy) Context() context.Context  { return context.Background() }

// play runs f and its cleanups and answers whether it failed.
func play(f func(t testing.TB)) (failed bool) {
	s := &spy{}
	func() {
		defer func() {
			if r := recover(); r != nil && r != any(stopped{}) {
				panic(r)
			}
		}()
		f(s)
	}()
	for _, c := range s.cleanups {
		c()
	}
	return len(s.failed) > 0
}

func TestScript(t *testing.T) {
	lvs := hosttest.Step{Argv: []string{"lvs", "vg0"}, Stdout: "{}"}
	run := func(argv ...string) func(testing.TB) {
		return func(t testing.TB) {
			r := hosttest.Script(t, lvs)
			if len(argv) > 0 {
				r.Run(context.Background(), argv[0], argv[1:]...)
			}
		}
	}
	tests := map[string]struct {
		play func(testing.TB)
		want bool
	}{
		"as scripted":      {run("lvs", "vg0"), false},
		"by its full path": {run("/sbin/lvs", "vg0"), false},
		"another argument": {run("lvs", "vg1"), true},
		"one more":         {run("lvs", "vg0", "vg1"), true},
		"never run":        {run(), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := play(tt.play); got != tt.want {
				t.Errorf("failed = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestScript_answers(t *testing.T) {
	hung := errors.New("hung")
	r := hosttest.Script(t,
		hosttest.Step{Argv: []string{"a"}, Stdout: "out"},
		hosttest.Step{Argv: []string{"b"}, Exit: 5, Stderr: "no such volume"},
		hosttest.Step{Argv: []string{"c"}, Err: hung},
		hosttest.Step{Argv: []string{"d"}})
	if out, err := r.Run(t.Context(), "a"); string(out) != "out" || err != nil {
		t.Errorf("Run(a) = %q, %v", out, err)
	}
	var exit *host.ExitError
	if _, err := r.Run(t.Context(), "b"); !errors.As(err, &exit) || exit.Code != 5 || exit.Stderr != "no such volume" {
		t.Errorf("Run(b) = %v, want exit status 5", err)
	}
	if _, err := r.Run(t.Context(), "c"); !errors.Is(err, hung) {
		t.Errorf("Run(c) = %v, want %v", err, hung)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Run(ctx, "d"); !errors.Is(err, context.Canceled) {
		t.Errorf("Run(d) after the end = %v", err)
	}
	if got := len(r.Calls()); got != 4 {
		t.Errorf("Calls() has %d entries, want 4", got)
	}
}

func TestNoLeaks(t *testing.T) {
	var f *os.File
	leak := func(t testing.TB) {
		hosttest.NoLeaks(t)
		f, _ = os.Open(os.DevNull)
	}
	if !play(leak) {
		t.Error("a file left open went unnoticed")
	}
	f.Close()
	clean := func(t testing.TB) {
		hosttest.NoLeaks(t)
		f, _ := os.Open(os.DevNull)
		f.Close()
	}
	if play(clean) {
		t.Error("a closed file was called a leak")
	}
}

// What a laptop skips, a lab guest must fail.
func TestNeed_inLab(t *testing.T) {
	for _, what := range []string{"pillar_no_such_module", "/no/such/file", "bin:pillar-no-such-program"} {
		need := func(t testing.TB) { hosttest.Need(t, what) }
		t.Setenv("PILLAR_LAB", "1")
		if !play(need) {
			t.Errorf("Need(%s) passed in the lab", what)
		}
		t.Setenv("PILLAR_LAB", "")
		if play(need) {
			t.Errorf("Need(%s) failed outside the lab", what)
		}
	}
	disk := func(t testing.TB) { hosttest.Disk(t, 7) }
	t.Setenv("PILLAR_LAB", "1")
	t.Setenv("PILLAR_LAB_DISKS", strings.Repeat(",", 3))
	if !play(disk) {
		t.Error("Disk(7) passed in a lab with no disks")
	}
}
