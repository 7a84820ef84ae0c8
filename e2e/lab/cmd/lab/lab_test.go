//go:build lab

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// endWait is how long the kernel may take to clear a lab's namespaces.
const endWait = 10 * time.Second

func buildLab(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "lab")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	return bin
}

func TestEnter_exitCode(t *testing.T) {
	bin := buildLab(t)
	out, err := exec.Command(bin, "enter", "--", "sh", "-c", "ip -4 -br addr show br0; exit 5").Output()
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.ExitCode() != 5 {
		t.Errorf("enter = %v, want exit status 5", err)
	}
	if !strings.Contains(string(out), "10.66.0.1/24 10.96.0.1/32") {
		t.Errorf("bridge has %q, want both addresses", out)
	}
}

// TestEnter_ends: however the process in front ends, nothing of its lab runs on.
func TestEnter_ends(t *testing.T) {
	bin := buildLab(t)
	for name, signal := range map[string]syscall.Signal{"kill -9": syscall.SIGKILL, "ctrl-C": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			mark := fmt.Sprintf("%d.%d", 10_000+signal, os.Getpid()) // seconds, recognizable in ps
			cmd := exec.Command(bin, "enter", "--", "sh", "-c", "setsid sleep "+mark+" & echo up; sleep "+mark)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := out.Read(make([]byte, 3)); err != nil {
				t.Fatal(err)
			}
			cmd.Process.Signal(signal)
			cmd.Wait()
			for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				left := running("sleep\x00" + mark)
				if left == 0 {
					return
				}
				if time.Since(start) > endWait {
					t.Fatalf("%d processes live on", left)
				}
			}
		})
	}
}

// TestExec_lost: a test that loses its guest is run once more and told; one that loses every guest
// fails.
func TestExec_lost(t *testing.T) {
	bin := buildLab(t)
	for name, want := range map[string]int{"once": 0, "always": lostCode} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			script, lost := filepath.Join(dir, name), filepath.Join(t.TempDir(), "lost")
			text := "#!/bin/sh\nbefore=$(cat " + dir + "/runs 2>/dev/null)\necho run >> " + dir + "/runs\n" +
				`[ -n "$before" ] && [ "${0##*/}" = once ] || echo c > /proc/sysrq-trigger` + "\n"
			if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(bin, "exec", script)
			cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool {
				return strings.HasPrefix(e, namespace.RunVar+"=")
			}), lostVar+"="+lost)
			out, _ := cmd.CombinedOutput()
			runs, err := os.ReadFile(filepath.Join(dir, "runs"))
			if code := cmd.ProcessState.ExitCode(); code != want || err != nil || strings.Count(string(runs), "run") != 2 {
				t.Errorf("exec = %d after %q, %v, want %d after two runs: %s", code, runs, err, want, out)
			}
			if note, err := os.ReadFile(lost); err != nil || !strings.Contains(string(note), "was lost") {
				t.Errorf("told %q, %v", note, err)
			}
		})
	}
}

// TestStop_kept: a lab that KEEP=1 left ends when asked, long before it would be killed.
func TestStop_kept(t *testing.T) {
	bin := buildLab(t)
	mark := fmt.Sprintf("20000.%d", os.Getpid())
	enter := exec.Command(bin, "enter", "--", "sh", "-c", "setsid sleep "+mark+" >/dev/null 2>&1 & echo $PILLAR_LAB_RUN")
	enter.Env = append(os.Environ(), "KEEP=1")
	run, err := enter.Output()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(strings.TrimSpace(string(run)))
	stop := exec.Command(bin, "stop")
	stop.Env = append(os.Environ(), "LAB="+name)
	begun := time.Now()
	out, err := stop.CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "ended "+name) {
		t.Errorf("stop = %v: %s, want ended %s", err, out, name)
	}
	if took := time.Since(begun); took > endWait {
		t.Errorf("stop took %s", took)
	}
	if left := running("sleep\x00" + mark); left != 0 {
		t.Errorf("%d processes live on", left)
	}
}

// running counts the processes with a command line.
func running(cmdline string) int {
	found := 0
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && bytes.HasPrefix(data, []byte(cmdline+"\x00")) {
			found++
		}
	}
	return found
}
