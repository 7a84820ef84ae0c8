package namespace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// failedKept is how many failed runs' consoles stay in the cache.
const failedKept = 10

// newRun makes the directory of a new lab and removes those of labs that were killed.
// The lab is alive as long as its pid 1 holds the returned lock.
func newRun(cache string) (run string, lock *os.File, err error) {
	base := filepath.Join(cache, "run")
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", nil, err
	}
	for _, run := range runs(cache) {
		if alive, err := isAlive(run); err == nil && !alive {
			os.RemoveAll(run)
		}
	}
	making, err := os.MkdirTemp(base, ".new-")
	if err != nil {
		return "", nil, err
	}
	if lock, err = os.Create(filepath.Join(making, "lock")); err != nil {
		return "", nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", nil, err
	}
	run = filepath.Join(base, "lab-"+strings.TrimPrefix(filepath.Base(making), ".new-"))
	return run, lock, os.Rename(making, run) // nobody sees it without its lock held
}

// isAlive reports whether pid 1 of a run still holds its lock.
func isAlive(run string) (bool, error) {
	f, err := os.Open(filepath.Join(run, "lock"))
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}

func runs(cache string) []string {
	found, _ := filepath.Glob(filepath.Join(cache, "run", "lab-*"))
	sort.Strings(found)
	return found
}

func pidOf(run string) (int, error) {
	data, err := os.ReadFile(filepath.Join(run, "pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// finishRun removes a lab's directory; of a failed one the consoles are kept and told.
func finishRun(run string, code int, log io.Writer) error {
	if code != 0 {
		kept, err := keepConsoles(run)
		if err != nil {
			return err
		}
		if kept != "" && log != nil {
			fmt.Fprintf(log, "lab: the consoles of this failed run are in %s\n", kept)
		}
	}
	return os.RemoveAll(run)
}

// keepConsoles moves the consoles of a run to the cache's failed/ and forgets the oldest.
func keepConsoles(run string) (string, error) {
	consoles, err := filepath.Glob(filepath.Join(run, "*", "*", "console.log"))
	if err != nil || len(consoles) == 0 {
		return "", err
	}
	failed := filepath.Join(filepath.Dir(filepath.Dir(run)), "failed")
	dir := filepath.Join(failed, time.Now().Format("20060102-150405-")+filepath.Base(run))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	for _, console := range consoles {
		guest := filepath.Base(filepath.Dir(console))
		if err := os.Rename(console, filepath.Join(dir, guest+".log")); err != nil {
			return "", err
		}
	}
	all, err := filepath.Glob(filepath.Join(failed, "*"))
	sort.Strings(all)
	for len(all) > failedKept {
		err = errors.Join(err, os.RemoveAll(all[0]))
		all = all[1:]
	}
	return dir, err
}

// FindGuest returns the address of a running guest and the host's process id of its lab. It
// is an error that names the guests there are when none has the name.
func FindGuest(cache, name string) (address string, pid int, err error) {
	var names []string
	for _, run := range runs(cache) {
		pid, err := pidOf(run)
		if alive, _ := isAlive(run); err != nil || !alive {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(run, "*", "*", "address"))
		for _, file := range files {
			guest := filepath.Base(filepath.Dir(file))
			names = append(names, guest)
			if guest == name {
				data, err := os.ReadFile(file)
				return string(data), pid, err
			}
		}
	}
	return "", 0, fmt.Errorf("no guest %q runs; running guests: %s", name, strings.Join(names, " "))
}

// Stop ends every lab that was kept, and returns how many.
func Stop(cache string) (int, error) {
	stopped := 0
	for _, run := range runs(cache) {
		if _, err := os.Stat(filepath.Join(run, "kept")); err != nil {
			continue
		}
		if err := kill(run); err != nil {
			return stopped, err
		}
		if err := os.RemoveAll(run); err != nil {
			return stopped, err
		}
		stopped++
	}
	return stopped, nil
}

// kill kills pid 1 of a run, if it is alive, and waits until the kernel has cleared its namespaces.
func kill(run string) error {
	for {
		alive, err := isAlive(run)
		if err != nil || !alive {
			return err
		}
		pid, err := pidOf(run)
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
