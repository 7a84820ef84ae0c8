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

// process is one native program of the control plane with its log file.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed once the program is reaped
	err  error         // how it ended; valid after done
}

// start runs a program in the background, its output in dir/NAME.log. The program dies
// with this process or, inside a lab, with the lab, which may be kept.
func start(dir, path string, args ...string) (*process, error) {
	p := &process{name: filepath.Base(path), done: make(chan struct{})}
	p.log = filepath.Join(dir, p.name+".log")
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
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
func (p *process) failed() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended early (%w): %s", p.name, errors.Join(p.err, errEnded), tail(p.log, 2000))
	default:
		return nil
	}
}

var errEnded = errors.New("nobody stopped it")

// stop ends the program with SIGTERM, or SIGKILL after stopWait or when ctx ends, and
// returns when it is reaped.
func (p *process) stop(ctx context.Context) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
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
