package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pillar-csi/pillar/storage/host/crashpoint"
)

// killWait is how long a program may take to be reaped after SIGKILL. A process in
// uninterruptible sleep (a suspended pool, a hung device) never is; its caller must not
// wait for it.
const killWait = 2 * time.Second

// pipeWait is how long the last words of a program that ended may take to be read. They are
// there at once; on a machine with far too much to do, seconds passed before our own reader
// was run again, and a volume that had been made was called a failure.
const pipeWait = time.Minute

// Runner runs a program with an argument vector and answers its standard output. A
// program that ran and failed is an *ExitError, one that is not installed ErrNoProgram; the
// context's end kills it with its whole process group. One that does not die is a *LingerError.
type Runner interface {
	Run(ctx context.Context, name string, args ...string) ([]byte, error)
}

// ErrNoProgram is a program that is not installed.
var ErrNoProgram = errors.New("no such program")

// ExitError is a program that ran and failed. Its text names the program and says what the
// program said; all the arguments would hide that, and are for a log.
type ExitError struct {
	Argv   []string
	Code   int    // exit status, or -1 when a signal ended it
	Stderr string // trimmed
}

func (e *ExitError) Error() string {
	msg := e.Stderr
	if msg == "" {
		msg = "no message"
	}
	return fmt.Sprintf("%s: exit status %d: %s", e.command(), e.Code, msg)
}

// command is the program, and the word after it unless that is an option: "zfs list", "lvs".
func (e *ExitError) command() string {
	words := e.Argv[:min(len(e.Argv), 2)]
	if len(words) == 2 && strings.HasPrefix(words[1], "-") {
		words = words[:1]
	}
	return strings.Join(words, " ")
}

// Exec runs real programs. Env is added to a fixed LC_ALL=C and the inherited PATH.
type Exec struct {
	Env []string
}

// Run implements Runner. Programs never see a shell, a terminal or another locale.
func (x Exec) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	what := filepath.Base(name) + " " + strings.Join(args, " ")
	crashpoint.Before(crashpoint.Program, what)
	out, err := x.run(ctx, name, args)
	crashpoint.After(crashpoint.Program, what)
	return out, err
}

func (x Exec) run(ctx context.Context, name string, args []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append([]string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}, x.Env...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = pipeWait
	lingers, err := wait(ctx, cmd)
	if ctx.Err() != nil {
		err = fmt.Errorf("%s: %w", filepath.Base(name), context.Cause(ctx))
		if lingers != nil {
			err = &LingerError{Err: err, Gone: lingers}
		}
		return nil, err
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		argv := append([]string{filepath.Base(name)}, args...)
		return stdout.Bytes(), &ExitError{Argv: argv, Code: exit.ExitCode(), Stderr: strings.TrimSpace(stderr.String())}
	}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %w", ErrNoProgram, err)
	}
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", filepath.Base(name), err)
	}
	return stdout.Bytes(), nil
}

// wait starts the program and waits for its end, or until killWait after the context's:
// os/exec has no bound for a program that does not die. That one lingers until the channel
// is closed. stdout and stderr are whole only if the context has not ended.
func wait(ctx context.Context, cmd *exec.Cmd) (lingers <-chan struct{}, err error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done, gone := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(gone)
		done <- cmd.Wait()
	}()
	select {
	case err := <-done:
		return nil, err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return nil, err
	case <-time.After(killWait):
		return gone, ctx.Err()
	}
}
