package artifacts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrMissing is an artifact that is not in the cache while building is not allowed.
var ErrMissing = errors.New("not in the cache")

// Cache is a directory of artifacts.
type Cache struct {
	Dir     string
	Log     io.Writer // progress lines, at least one every 10 s while something is built
	Offline bool      // answer ErrMissing instead of building
}

// Dir returns $PILLAR_LAB_CACHE, or pillar-lab in the user's cache directory.
func Dir() (string, error) {
	if dir := os.Getenv("PILLAR_LAB_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache directory, set PILLAR_LAB_CACHE: %w", err)
	}
	return filepath.Join(base, "pillar-lab"), nil
}

// artifact is one entry of the cache before it is known whether it exists.
type artifact struct {
	name string   // file name before the key, and the name in progress lines
	why  string   // what it is for, told when it is built
	key  []string // everything that goes into it
	make func(ctx context.Context, b *builder) error
}

// key is the part of a file name that changes when any input does.
func key(inputs []string) string {
	sum := sha256.Sum256([]byte(strings.Join(inputs, "\x00")))
	return hex.EncodeToString(sum[:6])
}

// get returns the artifact's directory, building it first if it is not there.
func (c *Cache) get(ctx context.Context, a artifact) (string, error) {
	id := a.name + "-" + key(a.key)
	dir := filepath.Join(c.Dir, id)
	if _, err := os.Stat(dir); err == nil {
		return dir, touch(dir)
	}
	if c.Offline {
		return "", fmt.Errorf("%s: %w, run `lab build` first", id, ErrMissing)
	}
	release, err := c.lock(ctx, id)
	if err != nil {
		return "", err
	}
	defer release()
	if _, err := os.Stat(dir); err == nil {
		return dir, touch(dir) // another lab built it while we waited
	}
	if err := c.build(ctx, a, dir); err != nil {
		return "", fmt.Errorf("build %s: %w", a.name, err)
	}
	return dir, touch(dir)
}

// build makes the artifact in a temporary directory beside its place and renames it.
func (c *Cache) build(ctx context.Context, a artifact, dir string) error {
	tmp, err := os.MkdirTemp(c.Dir, ".tmp-"+a.name+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp) // nothing there after the rename
	out := filepath.Join(tmp, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return err
	}
	b, err := newBuilder(c, a, out, filepath.Join(tmp, "work"))
	if err != nil {
		return err
	}
	start := time.Now()
	c.printf("%s is not cached, building it: %s", a.name, a.why)
	err = a.make(ctx, b)
	b.close()
	if err != nil {
		return fmt.Errorf("%w (log: %s)", err, b.logPath)
	}
	if err := os.Rename(out, dir); err != nil {
		return err
	}
	c.printf("%s done after %.0f s", a.name, time.Since(start).Seconds())
	return nil
}

// lock takes an exclusive lock named id, telling every 10 s that it waits.
func (c *Cache) lock(ctx context.Context, id string) (release func(), err error) {
	dir := filepath.Join(c.Dir, "locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, id), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	start, told := time.Now(), time.Time{}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if time.Since(told) > progressEvery {
			c.printf("waiting for another process that builds %s (%.0f s)", id, time.Since(start).Seconds())
			told = time.Now()
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// during runs act and tells at least every progressEvery that it still does.
func (c *Cache) during(what string, act func() error) error {
	start := time.Now()
	c.printf("%s", what)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(progressEvery):
				c.printf("%s (%.0f s)", what, time.Since(start).Seconds())
			}
		}
	}()
	err := act()
	close(stop)
	<-done
	return err
}

func (c *Cache) printf(format string, args ...any) {
	if c.Log != nil {
		fmt.Fprintf(c.Log, "lab: "+format+"\n", args...)
	}
}
