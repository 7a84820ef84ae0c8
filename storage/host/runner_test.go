package host_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// The programs the tests start are this test binary itself: no tool of the machine.
func TestMain(m *testing.M) {
	if len(os.Args) < 3 || os.Args[1] != "program" {
		os.Exit(m.Run())
	}
	switch os.Args[2] {
	case "env":
		os.Stdout.WriteString(strings.Join(os.Environ(), "\n"))
	case "args":
		os.Stdout.WriteString(strings.Join(os.Args[3:], "|"))
	case "fail":
		os.Stderr.WriteString("  no such thing\n\n")
		os.Exit(5)
	case "killed":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "hang": // with a child that holds the same pipes, as lvm's helpers do
		attr := &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}}
		child, err := os.StartProcess(os.Args[0], []string{os.Args[0], "program", "sleep"}, attr)
		if err != nil {
			os.Exit(1)
		}
		os.WriteFile(os.Args[3], []byte(strconv.Itoa(child.Pid)), 0o600)
		time.Sleep(time.Minute)
	case "undead": // with a tracer: until that ends, nobody else can reap it
		unix.Prctl(unix.PR_SET_PTRACER, unix.PR_SET_PTRACER_ANY, 0, 0, 0)
		attr := &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}}
		argv := []string{os.Args[0], "program", "trace", strconv.Itoa(os.Getpid()), os.Args[3]}
		if _, err := os.StartProcess(os.Args[0], argv, attr); err != nil {
			os.Exit(1)
		}
		time.Sleep(time.Minute)
	case "trace":
		runtime.LockOSThread()
		pid, _ := strconv.Atoi(os.Args[3])
		text := strconv.Itoa(os.Getpid())
		if err := unix.PtraceSeize(pid); err != nil {
			text = err.Error()
		}
		os.WriteFile(os.Args[4]+".new", []byte(text), 0o600)
		os.Rename(os.Args[4]+".new", os.Args[4])
		time.Sleep(time.Minute)
	case "sleep":
		time.Sleep(time.Minute)
	}
	os.Exit(0)
}

func run(ctx context.Context, x host.Exec, args ...string) (string, error) {
	out, err := x.Run(ctx, os.Args[0], append([]string{"program"}, args...)...)
	return string(out), err
}

// B-3, N-50: arguments arrive as they are, whatever a shell would make of them.
func TestExec_arguments(t *testing.T) {
	hosttest.NoLeaks(t)
	args := []string{"args", "a b", "$HOME", "; reboot", "`id`", "*", ""}
	got, err := run(t.Context(), host.Exec{}, args...)
	if want := strings.Join(args[1:], "|"); got != want || err != nil {
		t.Errorf("Run = %q, %v, want %q", got, err, want)
	}
}

// B-205: a fixed locale, the path, what Env adds, and nothing else of ours.
func TestExec_environment(t *testing.T) {
	t.Setenv("LC_ALL", "de_DE.UTF-8")
	t.Setenv("PILLAR_SECRET", "x")
	got, err := run(t.Context(), host.Exec{Env: []string{"LVM_SYSTEM_DIR=/etc/lvm"}}, "env")
	want := "LC_ALL=C\nPATH=" + os.Getenv("PATH") + "\nLVM_SYSTEM_DIR=/etc/lvm"
	if got != want || err != nil {
		t.Errorf("environment = %q, %v, want %q", got, err, want)
	}
}

func TestExec_failures(t *testing.T) {
	tests := map[string]struct {
		program string
		code    int
		stderr  string
	}{
		"exit status": {"fail", 5, "no such thing"},
		"signal":      {"killed", -1, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hosttest.NoLeaks(t)
			_, err := run(t.Context(), host.Exec{}, tt.program)
			var exit *host.ExitError
			if !errors.As(err, &exit) || exit.Code != tt.code || exit.Stderr != tt.stderr {
				t.Fatalf("Run = %v, want exit %d %q", err, tt.code, tt.stderr)
			}
			if exit.Argv[0] != filepath.Base(os.Args[0]) || exit.Argv[2] != tt.program {
				t.Errorf("Argv = %q", exit.Argv)
			}
		})
	}
	_, err := host.Exec{}.Run(t.Context(), "pillar-no-such-program")
	var exit *host.ExitError
	if !errors.Is(err, host.ErrNoProgram) || errors.As(err, &exit) {
		t.Errorf("Run of an absent program = %v, want ErrNoProgram", err)
	}
}

// The text is read in conditions and claims: what the program said, not how it was asked.
func TestExitError_Error(t *testing.T) {
	tests := map[string]struct {
		argv []string
		want string
	}{
		"options":           {[]string{"lvs", "--config", "global{lvdbusd=0}", "--units", "b", "vg0"}, `lvs: exit status 5: Volume group "vg0" not found`},
		"a word of its own": {[]string{"zfs", "list", "-Hp", "tank/k8s"}, `zfs list: exit status 5: Volume group "vg0" not found`},
		"alone":             {[]string{"lvs"}, `lvs: exit status 5: Volume group "vg0" not found`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := &host.ExitError{Argv: tt.argv, Code: 5, Stderr: `Volume group "vg0" not found`}
			if got := err.Error(); got != tt.want {
				t.Errorf("Error = %q, want %q", got, tt.want)
			}
		})
	}
}

// H-26: a program that hangs is killed with its children when the deadline passes.
func TestExec_deadline(t *testing.T) {
	hosttest.NoLeaks(t)
	child := filepath.Join(t.TempDir(), "child")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := run(ctx, host.Exec{}, "hang", child); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run = %v, want %v", err, context.DeadlineExceeded)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Run came back after %v", took)
	}
	pid, err := os.ReadFile(child)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); running(string(pid)); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("child %s of the killed program still runs", pid)
		}
	}
}

// H-26: a program that SIGKILL does not end, as one in uninterruptible sleep, does not hold
// up its caller.
func TestExec_undead(t *testing.T) {
	tracer := filepath.Join(t.TempDir(), "tracer")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := run(ctx, host.Exec{}, "undead", tracer)
		done <- err
	}()
	var text []byte
	for end := time.Now().Add(20 * time.Second); len(text) == 0; time.Sleep(10 * time.Millisecond) {
		if text, _ = os.ReadFile(tracer); time.Now().After(end) {
			t.Fatal("no tracer")
		}
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		t.Skipf("ptrace is not allowed here: %s", text)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	cancel()
	select {
	case err := <-done:
		var linger *host.LingerError
		if !errors.Is(err, context.Canceled) || !errors.As(err, &linger) {
			t.Fatalf("Run = %v, want %v of one that lingers", err, context.Canceled)
		}
		syscall.Kill(pid, syscall.SIGKILL)
		<-linger.Gone
	case <-time.After(10 * time.Second):
		t.Error("Run waits for a program that does not die")
	}
}

// running tells whether the process is there and no zombie.
func running(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z")
}

func TestRoot_Path(t *testing.T) {
	tests := map[string]struct {
		root host.Root
		want string
	}{
		"zero value": {"", "/sys/block/dm-0"},
		"test":       {"/tmp/x", "/tmp/x/sys/block/dm-0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.root.Path("sys", "block/dm-0"); got != tt.want {
				t.Errorf("Path = %q, want %q", got, tt.want)
			}
		})
	}
}
