package artifacts

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// progressEvery is the longest silence of a build; the project promises 10 s.
const progressEvery = 8 * time.Second

// builder is the workbench of one artifact: where its result goes, where scratch files go,
// and the programs run for it. It tells at least every progressEvery what it is doing.
type builder struct {
	cache   *Cache
	name    string
	out     string // becomes the artifact
	work    string // removed afterwards
	logPath string
	log     *os.File

	mu    sync.Mutex
	doing string
	since time.Time
	stop  chan struct{}
	done  sync.WaitGroup
}

func newBuilder(c *Cache, a artifact, out, work string) (*builder, error) {
	logs := filepath.Join(c.Dir, "logs")
	for _, dir := range []string{work, logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	b := &builder{cache: c, name: a.name, out: out, work: work,
		logPath: filepath.Join(logs, a.name+".log"), stop: make(chan struct{})}
	var err error
	if b.log, err = os.Create(b.logPath); err != nil {
		return nil, err
	}
	b.doing, b.since = "starting", time.Now()
	b.done.Go(b.progress)
	return b, nil
}

func (b *builder) close() {
	close(b.stop)
	b.done.Wait()
	b.log.Close()
}

// step names what happens from now on.
func (b *builder) step(format string, args ...any) {
	b.mu.Lock()
	b.doing, b.since = fmt.Sprintf(format, args...), time.Now()
	b.mu.Unlock()
	b.cache.printf("%s: %s", b.name, b.doing)
	fmt.Fprintf(b.log, "== %s\n", b.doing)
}

func (b *builder) progress() {
	for {
		select {
		case <-b.stop:
			return
		case <-time.After(progressEvery):
			b.mu.Lock()
			b.cache.printf("%s: %s (%.0f s)", b.name, b.doing, time.Since(b.since).Seconds())
			b.mu.Unlock()
		}
	}
}

// run runs a program in dir with its output in the build's log. Env is added to ours.
func (b *builder) run(ctx context.Context, dir string, env []string, argv ...string) error {
	fmt.Fprintf(b.log, "$ %s\n", strings.Join(argv, " "))
	cmd := command(ctx, dir, env, argv...)
	tail := &tailBuffer{}
	cmd.Stdout = io.MultiWriter(b.log, tail)
	cmd.Stderr = cmd.Stdout
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, tail)
	}
	return nil
}

// pipe runs programs with the output of each as the input of the next; the last one runs in
// dir and its output goes to the log.
func (b *builder) pipe(ctx context.Context, dir string, programs ...[]string) error {
	var cmds []*exec.Cmd
	for i, argv := range programs {
		cmd := command(ctx, dir, nil, argv...)
		cmd.Stderr = b.log
		if i > 0 {
			out, err := cmds[i-1].StdoutPipe()
			if err != nil {
				return err
			}
			cmd.Stdin = out
		}
		cmds = append(cmds, cmd)
	}
	cmds[len(cmds)-1].Stdout = b.log
	for i, cmd := range cmds {
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s: %w", programs[i][0], err)
		}
	}
	var failed error
	for i := len(cmds) - 1; i >= 0; i-- { // readers first: Wait closes the writer's end
		if err := cmds[i].Wait(); err != nil && failed == nil {
			failed = fmt.Errorf("%s: %w", programs[i][0], err)
		}
	}
	return failed
}

// command is a program in a process group of its own, killed whole when ctx ends, without
// a terminal and in the C locale.
func command(ctx context.Context, dir string, env []string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// output runs a program and returns its standard output; its standard error is in the error.
func output(ctx context.Context, dir string, env []string, argv ...string) (string, error) {
	cmd := command(ctx, dir, env, argv...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// tailBuffer keeps the last lines written to it, for error messages.
type tailBuffer struct{ data []byte }

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.data = append(t.data, p...)
	if extra := len(t.data) - 600; extra > 0 {
		t.data = t.data[extra:]
	}
	return len(p), nil
}

func (t *tailBuffer) String() string { return strings.TrimSpace(string(t.data)) }
