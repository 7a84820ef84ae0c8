package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// stopWait is how long a program may take to end after SIGTERM before it is killed.
// kube-apiserver was seen to need 5 s.
const stopWait = 10 * time.Second

// Process is one native program with its log file.
type Process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed once the program is reaped
	err  error         // how it ended; valid after done
}

// StartProcess runs a program in the background, its output in dir/NAME.log, with env on
// top of this process's environment. The program dies with this process or, inside a lab,
// with the lab, which may be kept.
func StartProcess(dir, path string, env []string, args ...string) (*Process, error) {
	p := &Process{name: filepath.Base(path), done: make(chan struct{})}
	p.log = filepath.Join(dir, p.name+".log")
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getenv(namespace.RunVar) == "" { // a lab's namespaces end all that is in them
		p.cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// failed answers an error with the end of the log if the program has ended.
func (p *Process) failed() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended early (%w): %s", p.name, errors.Join(p.err, errEnded), tail(p.log, 2000))
	default:
		return nil
	}
}

var errEnded = errors.New("nobody stopped it")

// PID is the program's process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed once the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the program with SIGKILL, as a crash would.
func (p *Process) Kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Stop ends the program with SIGTERM, or SIGKILL after stopWait or when ctx ends, and
// returns when it is reaped.
func (p *Process) Stop(ctx context.Context) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	p.Kill()
}

// tail answers at most n bytes of the end of a file, for error messages.
func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	if len(data) > n {
		data = data[len(data)-n:]
	}
	return string(bytes.TrimSpace(data))
}
