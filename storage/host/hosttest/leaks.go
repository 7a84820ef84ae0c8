package hosttest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// leakWait is how long a descriptor that is about to be closed may take: a killed
// program's pipes are closed by the goroutine that drains them.
const leakWait = time.Second

// NoLeaks fails the test if at its end this process has a file, device or socket open
// that it had not when NoLeaks was called. Call it first, and not in parallel tests.
func NoLeaks(t testing.TB) {
	t.Helper()
	before, err := descriptors()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var leaked []string
		for end := time.Now().Add(leakWait); ; time.Sleep(10 * time.Millisecond) {
			if leaked, err = opened(before); err == nil && len(leaked) == 0 {
				return
			}
			if time.Now().After(end) {
				t.Errorf("descriptors left open: %s (%v)", strings.Join(leaked, ", "), err)
				return
			}
		}
	})
}

func opened(before map[string]string) ([]string, error) {
	now, err := descriptors()
	var more []string
	for fd, target := range now {
		if before[fd] != target {
			more = append(more, fmt.Sprintf("%s (%s)", fd, target))
		}
	}
	return more, err
}

// descriptors answers what /proc/self/fd leads to, without what the Go runtime opens for
// itself when it first needs it.
func descriptors() (map[string]string, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, err
	}
	open := map[string]string{}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || strings.HasPrefix(target, "anon_inode:") || strings.HasSuffix(target, "/fd") {
			continue // closed meanwhile; epoll, eventfd and pidfd; this very directory
		}
		open[e.Name()] = target
	}
	return open, nil
}
