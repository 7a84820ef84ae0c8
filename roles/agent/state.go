package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/storage/host/durable"
)

// state is the state directory. It is this process's alone while lock is open.
type state struct {
	dir  string
	lock *os.File
}

// openState makes the directory if it is missing, takes its lock, and makes sure that what
// the agent before left survives a crash (durable.Prepare). The kernel frees the
// lock with the descriptor, so a crashed agent never keeps the next one out.
func openState(dir string) (*state, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		first := holder(lock)
		lock.Close()
		return nil, fmt.Errorf("state directory %s is in use by another agent%s: stop it or set --state-dir", dir, first)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock state directory %s: %w", dir, err)
	}
	_ = sign(lock) // a disk that is full is no reason not to start: a restore writes nothing there
	s := &state{dir: dir, lock: lock}
	for _, d := range []string{dir, s.path("nvmet-identity")} { // only once they are ours
		if err := durable.Prepare(d, 0o700); err != nil {
			lock.Close()
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	return s, nil
}

// sign writes into the lock who holds it, for the message of a second agent. Nothing else
// depends on it: the lock is the descriptor's.
func sign(lock *os.File) error {
	machine, err := os.Hostname()
	if err != nil {
		return err
	}
	text := fmt.Sprintf("process %d on %s since %s\n", os.Getpid(), machine, time.Now().UTC().Format(time.RFC3339))
	if err := lock.Truncate(0); err != nil {
		return err
	}
	_, err = lock.WriteAt([]byte(text), 0)
	return err
}

// holder is what the one who holds the lock wrote, in brackets; nothing if that cannot be read.
func holder(lock *os.File) string {
	text := make([]byte, 256)
	n, _ := lock.ReadAt(text, 0)
	first, _, _ := strings.Cut(string(text[:n]), "\n")
	if first == "" {
		return ""
	}
	return fmt.Sprintf(" (%s)", first)
}

// of refuses a directory whose marks are of another kind of volumes: simulated ones never
// were, and a mark of them would refuse, or allow, what it must not on a real node.
func (s *state) of(simulated bool) error {
	have, err := dryrun.Simulated(s.dir)
	if err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	marks, err := os.ReadDir(s.path("generations"))
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("state directory: %w", err)
	case have && !simulated:
		return fmt.Errorf("state directory %s belongs to a simulated agent (--dry-run --serve): set --state-dir to another, or remove it", s.dir)
	case simulated && !have && len(marks) > 0:
		return fmt.Errorf("state directory %s belongs to a real agent: set --state-dir to one of the simulation's own", s.dir)
	}
	return nil
}

func (s *state) close() error { return s.lock.Close() }

func (s *state) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

// flushed leaves the marker of a finished drain.
func (s *state) flushed() error {
	if err := durable.Write(s.path("flushed"), nil, 0o600); err != nil {
		return fmt.Errorf("mark state flushed: %w", err)
	}
	return nil
}

// takeFlushed removes the marker and says whether it was there. Nothing depends on it.
func (s *state) takeFlushed() (bool, error) {
	_, err := os.Stat(s.path("flushed"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, durable.Remove(s.path("flushed"))
}
