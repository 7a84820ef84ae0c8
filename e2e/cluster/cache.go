package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// sayEvery is how often a long step repeats what it is doing; the lab promises a line at
// least every 10 s.
const sayEvery = 8 * time.Second

// cacheFolder makes and answers a folder of the lab's cache: PILLAR_LAB_CACHE, else
// ~/.cache/pillar-lab.
func cacheFolder(name string) (string, error) {
	base := os.Getenv("PILLAR_LAB_CACHE")
	if base == "" {
		home, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("lab cache: %w", err)
		}
		base = filepath.Join(home, "pillar-lab")
	}
	dir := filepath.Join(base, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("lab cache: %w", err)
	}
	return dir, nil
}

// repository answers the root of the checkout: the nearest parent of the working directory
// whose go.mod is pillar's own.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module github.com/pillar-csi/pillar\n") {
			return dir, nil
		}
	}
	return "", errors.New("find the repository: no go.mod of pillar above the working directory")
}

// lock takes an exclusive lock on a file until the answered function is called or the
// process ends. While another process holds it, say is told.
func lock(ctx context.Context, path string, say func(string)) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	got := make(chan error, 1)
	go func() { got <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err = <-got:
	case <-time.After(100 * time.Millisecond):
		done := tell(say, "waiting for another build, which holds "+path)
		defer done()
		select {
		case err = <-got:
		case <-ctx.Done():
			err = ctx.Err() // the goroutine ends with the other holder; it keeps only f
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { f.Close() }, nil
}

// tell says what begins now, and repeats it with the time spent until done is called.
func tell(say func(string), what string) (done func()) {
	start := time.Now()
	say(what)
	stop, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				say(fmt.Sprintf("%s: %d s", what, int(time.Since(start).Seconds())))
			}
		}
	}()
	return func() { close(stop); <-gone }
}
