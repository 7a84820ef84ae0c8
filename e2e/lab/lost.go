package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrSilent is a guest whose process runs and whose agent does not answer.
var ErrSilent = errors.New("guest does not answer")

// Lost tells whether an operation ended because its guest did: it died, or answers no more. That
// the caller's time was over, a net.Error as well, says nothing about the guest.
func Lost(err error) bool {
	return errors.Is(err, ErrDown) || errors.Is(err, ErrSilent) || errors.As(err, new(*net.OpError))
}

// patience is how long a guest may be silent while something runs in it: an answer that takes
// seconds on a loaded machine is none that never comes. TCP by itself would give up after 150 s,
// and never while the guest's kernel lives.
const patience = time.Minute

// watch asks the guest's agent a few times in its patience and gives up when it was silent for
// all of it.
func (g *Guest) watch(ctx context.Context, giveUp func(error)) {
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(g.lab.patience() / 4):
		}
		if g.answers(ctx, last.Add(g.lab.patience())) {
			last = time.Now()
		} else if time.Since(last) >= g.lab.patience() {
			giveUp(fmt.Errorf("%w for %.0f s", ErrSilent, time.Since(last).Seconds()))
			return
		}
	}
}

func (g *Guest) answers(ctx context.Context, until time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	_, err := g.agent.Get(ctx, "/proc/uptime")
	return err == nil
}

func (l *Lab) patience() time.Duration {
	if l.cfg.Patience > 0 {
		return l.cfg.Patience
	}
	return patience
}

// explain adds to the error of an act what is known of a guest that was lost during it.
// cause is what ended the act, if it did not end by itself.
func (g *Guest) explain(err, cause error) error {
	if errors.Is(cause, ErrSilent) {
		return fmt.Errorf("%s: %w; %s", g.Spec.Name, cause, g.examine())
	}
	if cause != nil || !Lost(err) {
		return fmt.Errorf("%s: %w", g.Spec.Name, err)
	}
	return fmt.Errorf("%s: %w; %s", g.Spec.Name, err, g.examine())
}

// lastWords is the reason the console, from offset at on, gives for the end of a boot.
func (g *Guest) lastWords(at int64) string {
	text, err := consoleSince(g.Console(), at)
	if err != nil {
		return ""
	}
	if _, err := judgeConsole(text, g.lab.kind.troubles()); err != nil {
		return " (" + err.Error() + ")"
	}
	return ""
}

// examine says whether a guest that was lost spins or waits and where, and has its kernel
// write on the console what its tasks do.
func (g *Guest) examine() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd == nil {
		return "it was killed meanwhile"
	}
	pid := g.cmd.Process.Pid
	before, _, err := groupTime(pid)
	start := time.Now()
	time.Sleep(time.Second)
	after, state, err2 := groupTime(pid)
	if err = errors.Join(err, err2); err != nil {
		return err.Error()
	}
	used := fmt.Sprintf("its process is in state %s and used %.2f s of CPU in %.2f s", state, (after - before).Seconds(), time.Since(start).Seconds())
	where, err := g.lab.kind.trace(g)
	if where != "" {
		used += ", its kernel is at " + where
	}
	if err != nil {
		return fmt.Sprintf("%s, its kernel does not say what it does: %v", used, err)
	}
	return used + ", what it says of its tasks is on its console"
}

// groupTime is the CPU time that a process group has used, and the state of its leader: fields
// of proc_pid_stat(5). Most of a user-mode guest's processes run its programs.
func groupTime(group int) (used time.Duration, state string, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, "", err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it ended
		}
		if err != nil {
			return 0, "", err
		}
		s, err := parseStat(string(data))
		if err != nil {
			return 0, "", fmt.Errorf("%s: %w", file, err)
		}
		if s.group != group {
			continue
		}
		used += s.used
		if s.pid == group {
			state = s.state
		}
	}
	if state == "" {
		return 0, "", fmt.Errorf("process %d is gone", group)
	}
	return used, state, nil
}

// stat is what groupTime wants of a process.
type stat struct {
	pid, group int
	state      string
	used       time.Duration
}

// tick is the unit of times in proc_pid_stat(5), the same on all architectures: USER_HZ.
const tick = time.Second / 100

// parseStat reads "pid (comm) state ppid pgrp ... utime stime ...". The name in brackets may hold
// anything, brackets and blanks too.
func parseStat(line string) (s stat, err error) {
	pid, _, ok := strings.Cut(line, " (")
	end := strings.LastIndexByte(line, ')')
	if !ok || end < 0 {
		return s, fmt.Errorf("not a stat line: %q", line)
	}
	f := strings.Fields(line[end+1:])
	if len(f) < 13 {
		return s, fmt.Errorf("short stat line: %q", line)
	}
	var numbers [4]int
	for i, text := range []string{pid, f[2], f[11], f[12]} {
		if numbers[i], err = strconv.Atoi(text); err != nil {
			return s, err
		}
	}
	return stat{pid: numbers[0], group: numbers[1], state: f[0], used: time.Duration(numbers[2]+numbers[3]) * tick}, nil
}
