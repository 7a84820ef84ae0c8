package namespace

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// running makes a lab whose pid 1 is a process that sleeps, with guests.
func running(t *testing.T, cache string, guests ...string) Lab {
	t.Helper()
	run, lock, err := newRun(cache)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	init := exec.Command("sleep", "1000")
	init.ExtraFiles = []*os.File{lock}
	if err := init.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { init.Process.Kill(); init.Wait() })
	if err := writePID(run, init.Process.Pid); err != nil {
		t.Fatal(err)
	}
	for _, guest := range guests {
		dir := filepath.Join(run, "guests-1", guest)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "address"), []byte(guest+":2222"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l, err := look(run)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestRunning(t *testing.T) {
	cache := t.TempDir()
	killed, lock, err := newRun(cache)
	if err != nil {
		t.Fatal(err)
	}
	if labs, err := Running(cache); len(labs) != 0 || err != nil {
		t.Errorf("Running() = %v, %v before there is a pid, want none", labs, err)
	}
	first, second := running(t, cache), running(t, cache)
	lock.Close() // as the end of pid 1 would
	labs, err := Running(cache)
	if want := []Lab{first, second}; !slices.Equal(labs, want) || err != nil {
		t.Errorf("Running() = %v, %v, want %v without %s", labs, err, want, killed)
	}
	if first.Command != "1000" || first.PID == 0 || first.Kept {
		t.Errorf("look() = %+v, want the command without its first word, a pid, not kept", first)
	}
}

func TestFindGuest(t *testing.T) {
	cache := t.TempDir()
	one := running(t, cache, "storage-1", "worker-1")
	two := running(t, cache, "storage-1")
	tests := map[string]struct {
		lab, guest string
		want       Lab
		err        []string
	}{
		"only one lab has it":   {guest: "worker-1", want: one},
		"two labs have it":      {guest: "storage-1", err: []string{"LAB=" + one.Name, one.String(), two.String()}},
		"the named lab has it":  {lab: two.Name, guest: "storage-1", want: two},
		"another lab has it":    {lab: two.Name, guest: "worker-1", err: []string{`"worker-1"`, "guests: storage-1"}},
		"no lab has the name":   {lab: "lab-x", guest: "storage-1", err: []string{"lab-x", one.String(), two.String()}},
		"no guest has the name": {guest: "worker-9", err: []string{`"worker-9"`, "storage-1 storage-1 worker-1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l, address, err := FindGuest(cache, test.lab, test.guest)
			if len(test.err) == 0 && (err != nil || l != test.want || address != test.guest+":2222") {
				t.Errorf("FindGuest() = %v, %s, %v, want %v", l, address, err, test.want)
			}
			for _, word := range test.err {
				if err == nil || !strings.Contains(err.Error(), word) {
					t.Errorf("FindGuest() = %v, want an error that says %q", err, word)
				}
			}
		})
	}
}

func TestStop(t *testing.T) {
	tests := map[string]struct {
		named       bool
		kept, ended bool
	}{
		"kept":             {kept: true, ended: true},
		"at work":          {},
		"at work, by name": {named: true, ended: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			other, l := running(t, cache), running(t, cache)
			if test.kept {
				t.Setenv(RunVar, l.Dir)
				if err := Keep(); err != nil {
					t.Fatal(err)
				}
			}
			choice := ""
			if test.named {
				choice = l.Name
			}
			ended, busy, err := Stop(cache, choice)
			has := func(labs []Lab) bool {
				return slices.ContainsFunc(labs, func(other Lab) bool { return other.Name == l.Name })
			}
			if err != nil || has(ended) != test.ended || has(busy) == test.ended {
				t.Errorf("Stop() = %v, %v, %v, want ended %v", ended, busy, err, test.ended)
			}
			if _, err := look(l.Dir); (err == nil) == test.ended {
				t.Errorf("look() = %v after Stop", err)
			}
			if _, err := os.Stat(l.Dir); os.IsNotExist(err) != test.ended {
				t.Errorf("the lab's directory: %v", err)
			}
			if _, err := look(other.Dir); err != nil {
				t.Errorf("the other lab: %v", err)
			}
		})
	}
}

// A name that no lab has ends none.
func TestStop_unknown(t *testing.T) {
	cache := t.TempDir()
	l := running(t, cache)
	if ended, _, err := Stop(cache, "lab-x"); len(ended) != 0 || err == nil || !strings.Contains(err.Error(), l.Name) {
		t.Errorf("Stop(lab-x) = %v, %v, want an error that lists %s", ended, err, l.Name)
	}
	if _, err := look(l.Dir); err != nil {
		t.Errorf("the lab with another name: %v", err)
	}
}
