package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

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
		lock.Close()
		return nil, fmt.Errorf("state directory %s is in use by another agent: stop it or set --state-dir", dir)
	}
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock state directory %s: %w", dir, err)
	}
	s := &state{dir: dir, lock: lock}
	for _, d := range []string{dir, s.path("nvmet-identity")} { // only once they are ours
		if err := durable.Prepare(d, 0o700); err != nil {
			lock.Close()
			return nil, fmt.Errorf("state directory: %w", err)
		}
	}
	return s, nil
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
