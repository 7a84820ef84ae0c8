package namespace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
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
