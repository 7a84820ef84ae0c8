package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Lab is a lab that runs.
type Lab struct {
	Name    string // of its directory, such as lab-1462210020
	Dir     string
	PID     int    // of its pid 1, as the machine counts
	Command string // that it was made for
	Started time.Time
	Kept    bool // nothing happens in it any more
}

func (l Lab) String() string {
	return fmt.Sprintf("%s (pid %d, since %s): %s", l.Name, l.PID, l.Started.Format(time.TimeOnly), l.Command)
}

// List shows labs, each on a line of its own.
func List(labs []Lab) string {
	var text strings.Builder
	for _, l := range labs {
		fmt.Fprintf(&text, "\n  %s", l)
	}
	return text.String()
}

// Running answers the labs that run, the oldest first.
func Running(cache string) (labs []Lab, err error) {
	for _, run := range runs(cache) {
		l, err := look(run)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue // it has no pid 1 yet, or it ended meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("look at %s: %w", run, err)
		}
		labs = append(labs, l)
	}
	slices.SortStableFunc(labs, func(a, b Lab) int { return a.Started.Compare(b.Started) })
	return labs, nil
}

// look reads what a lab's directory and its pid 1 say. A lab that does not run is
// fs.ErrNotExist.
func look(run string) (Lab, error) {
	alive, err := isAlive(run)
	if err != nil {
		return Lab{}, err
	}
	if !alive {
		return Lab{}, fs.ErrNotExist
	}
	made, err := os.Stat(filepath.Join(run, "lock")) // never written
	if err != nil {
		return Lab{}, err
	}
	text, err := os.ReadFile(filepath.Join(run, "pid"))
	if err != nil {
		return Lab{}, err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return Lab{}, err
	}
	argv, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return Lab{}, err
	}
	_, command, _ := strings.Cut(strings.TrimSuffix(string(argv), "\x00"), "\x00") // without initArg
	_, err = os.Stat(filepath.Join(run, "kept"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Lab{}, err
	}
	return Lab{Name: filepath.Base(run), Dir: run, PID: pid, Command: strings.ReplaceAll(command, "\x00", " "),
		Started: made.ModTime(), Kept: err == nil}, nil
}

// Choose answers the lab with the name, or the only one if the name is empty. It is an error
// that lists the labs when that is not one.
func Choose(labs []Lab, name string) (Lab, error) {
	if name == "" && len(labs) == 1 {
		return labs[0], nil
	}
	if i := slices.IndexFunc(labs, func(l Lab) bool { return l.Name == name }); i >= 0 {
		return labs[i], nil
	}
	switch {
	case len(labs) == 0:
		return Lab{}, errors.New("no lab runs")
	case name == "":
		return Lab{}, fmt.Errorf("several labs run, say which with %s=%s:%s", ChoiceVar, labs[0].Name, List(labs))
	}
	return Lab{}, fmt.Errorf("no lab %s=%s runs, there are:%s", ChoiceVar, name, List(labs))
}

// FindGuest answers the lab that has a running guest of a name, and the guest's address. The
// lab is the named one, or the only one that has the guest: it is an error that lists labs or
// guests when that is not one.
func FindGuest(cache, lab, name string) (l Lab, address string, err error) {
	labs, err := Running(cache)
	if err != nil {
		return Lab{}, "", err
	}
	if lab != "" {
		if l, err = Choose(labs, lab); err != nil {
			return Lab{}, "", err
		}
		labs = []Lab{l}
	}
	var names []string
	addresses := map[string]string{} // the guest's file, by lab
	for _, l := range labs {
		guests, err := l.guests()
		if err != nil {
			return Lab{}, "", err
		}
		names = slices.AppendSeq(names, maps.Keys(guests))
		if file, ok := guests[name]; ok {
			addresses[l.Name] = file
		}
	}
	if len(addresses) == 0 {
		slices.Sort(names)
		return Lab{}, "", fmt.Errorf("no guest %q runs; running guests: %s", name, strings.Join(names, " "))
	}
	labs = slices.DeleteFunc(labs, func(l Lab) bool { return addresses[l.Name] == "" })
	if l, err = Choose(labs, ""); err != nil {
		return Lab{}, "", fmt.Errorf("guest %s: %w", name, err)
	}
	text, err := os.ReadFile(addresses[l.Name])
	return l, string(text), err
}

// guests answers the files with the addresses of the lab's guests, by name.
func (l Lab) guests() (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(l.Dir, "guests-*", "*", "address"))
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, file := range files {
		all[filepath.Base(filepath.Dir(file))] = file
	}
	return all, nil
}

// JoinNetwork moves the calling goroutine into the lab's network, for good: its thread ends
// with it.
func (l Lab) JoinNetwork() error {
	runtime.LockOSThread() // never unlocked
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", l.PID))
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the network of %s: %w", l.Name, err)
	}
	return nil
}

// Keep tells, from inside a lab, that nothing happens in it any more and Stop may end it.
func Keep() error {
	return os.WriteFile(filepath.Join(os.Getenv(RunVar), "kept"), nil, 0o644)
}

// Stop ends every lab that is kept, or the one with the name, kept or not. It answers those it
// ended and those it left because they are at work.
func Stop(cache, name string) (ended, busy []Lab, err error) {
	labs, err := Running(cache)
	if err != nil {
		return nil, nil, err
	}
	if name != "" {
		l, err := Choose(labs, name)
		if err != nil {
			return nil, nil, err
		}
		l.Kept = true
		labs = []Lab{l}
	}
	for _, l := range labs {
		if !l.Kept {
			busy = append(busy, l)
			continue
		}
		if err := l.end(); err != nil {
			return ended, busy, fmt.Errorf("end %s: %w", l, err)
		}
		ended = append(ended, l)
	}
	return ended, busy, nil
}

// end asks pid 1 to end, kills it when the grace is over, and returns when the kernel has
// cleared its namespaces and whoever entered the lab has taken its results.
func (l Lab) end() error {
	init, err := os.FindProcess(l.PID) // this very process, whoever has its number later
	if err != nil {
		return err
	}
	defer init.Release()
	signal, due := syscall.SIGTERM, time.Now()
	for {
		alive, err := isAlive(l.Dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !alive {
			return os.RemoveAll(l.Dir) // whoever entered the lab may be about it
		}
		if err != nil {
			return err
		}
		if !time.Now().Before(due) {
			if err := init.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
				return err
			}
			signal, due = syscall.SIGKILL, time.Now().Add(grace)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
