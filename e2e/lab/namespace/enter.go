package namespace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// grace is how long a command may take to end after ctrl-C before all is killed.
const grace = 15 * time.Second

// initArg in argv[0] makes a program that calls Init pid 1 of a new lab.
const initArg = "pillar-lab-init"

// Config of a lab's namespaces.
type Config struct {
	Cache string    // directory of the artifact cache
	Log   io.Writer // where a failed lab's consoles are told
	Keep  bool      // leave the lab running when the command ends, until Stop
	Env   []string  // added to the command's environment
}

// Enter runs argv in new namespaces and returns its exit code. The program calling it must call
// Init first in its main. It needs root.
func Enter(ctx context.Context, cfg Config, argv ...string) (code int, err error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("a lab needs root for its namespaces; nothing outside them is changed")
	}
	run, lock, err := newRun(cfg.Cache)
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	if !cfg.Keep {
		defer func() { err = errors.Join(err, finishRun(run, code, cfg.Log)) }()
	}
	// The parent-death signal comes when the thread that forked ends, so keep it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	interrupts := make(chan os.Signal, 2)
	signal.Notify(interrupts, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(interrupts)

	result, told, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer result.Close()
	cmd := initCommand(cfg, run, []*os.File{told, lock}, argv)
	if err := cmd.Start(); err != nil {
		told.Close()
		return 0, fmt.Errorf("make namespaces: %w", err)
	}
	told.Close()
	if err := writePID(run, cmd.Process.Pid); err != nil {
		cmd.Process.Kill()
		return 0, err
	}
	return wait(ctx, cmd, result, interrupts)
}

// writePID shows pid 1 to other processes, which find the whole number or no file.
func writePID(run string, pid int) error {
	file := filepath.Join(run, "pid")
	if err := os.WriteFile(file+".new", []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// initCommand is this program as pid 1 of the new namespaces. It tells the command's exit
// code on file descriptor 3 and holds the lab's lock on 4.
func initCommand(cfg Config, run string, extra []*os.File, argv []string) *exec.Cmd {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: append([]string{initArg}, argv...)}
	cmd.Env = append(os.Environ(), RunVar+"="+run)
	cmd.Env = append(cmd.Env, cfg.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = extra
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
	}
	if cfg.Keep {
		cmd.Env = append(cmd.Env, KeepVar+"=1")
		cmd.SysProcAttr.Pdeathsig = 0
		cmd.SysProcAttr.Setsid = true
	}
	return cmd
}

// wait returns when the command has told its exit code and, unless the lab is kept, pid 1
// is gone. The first interrupt asks, the second one or the end of the grace kills.
func wait(ctx context.Context, cmd *exec.Cmd, result io.Reader, interrupts <-chan os.Signal) (int, error) {
	ended := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(result) // ends when pid 1 closes its end or dies
		ended <- string(text)
	}()
	done := ctx.Done()
	var kill <-chan time.Time
	for {
		select {
		case text := <-ended:
			return exitCode(cmd, text)
		case <-kill:
			cmd.Process.Kill()
		case <-interrupts:
			kill = ask(cmd, kill)
		case <-done:
			done = nil
			kill = ask(cmd, kill)
		}
	}
}

// ask asks pid 1 to end its command, or kills when that was asked before.
func ask(cmd *exec.Cmd, asked <-chan time.Time) <-chan time.Time {
	if asked != nil {
		cmd.Process.Kill()
		return asked
	}
	cmd.Process.Signal(syscall.SIGTERM)
	return time.After(grace)
}

func exitCode(cmd *exec.Cmd, text string) (int, error) {
	text, kept := strings.CutSuffix(text, " kept")
	if kept {
		cmd.Process.Release()
	} else {
		cmd.Wait() // pid 1 ends only after all of its namespace
	}
	code, err := strconv.Atoi(text)
	if err != nil {
		return 137, nil // killed before it could tell
	}
	return code, nil
}
