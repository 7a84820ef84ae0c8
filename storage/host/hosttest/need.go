package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage/host"
)

// InLab tells whether the test runs in a lab guest, whose kernel it may change.
func InLab() bool { return os.Getenv("PILLAR_LAB") == "1" }

// Need makes sure of what a kernel test stands on: a kernel module by its name
// ("nvmet_tcp", loaded if need be), a file by its path, a program by "bin:" and its name.
// Outside the lab the test is skipped, whatever is there: a laptop's kernel is not ours to
// change. In the lab anything missing fails it.
func Need(t testing.TB, what ...string) {
	t.Helper()
	if !InLab() {
		t.Skipf("needs a lab guest with %s: run it with make lab", strings.Join(what, ", "))
	}
	for _, w := range what {
		if err := need(t.Context(), w); err != nil {
			t.Fatalf("this guest lacks %s: %v", w, err)
		}
	}
}

func need(ctx context.Context, what string) error {
	if name, ok := strings.CutPrefix(what, "bin:"); ok {
		_, err := exec.LookPath(name)
		return err
	}
	if strings.Contains(what, "/") {
		_, err := os.Stat(what)
		return err
	}
	if _, err := os.Stat("/sys/module/" + what); err == nil {
		return nil
	}
	// A module without parameters that is built in has no directory: modprobe knows it.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := host.Exec{}.Run(ctx, "modprobe", what)
	return err
}

// Disk answers the i-th spare disk of the guest, with nothing left at its start and end.
// Outside the lab the test is skipped. A disk that something still holds fails the test.
func Disk(t testing.TB, i int) string {
	t.Helper()
	if !InLab() {
		t.Skip("needs a spare disk of a lab guest: run it with make lab")
	}
	disks := strings.Split(os.Getenv("PILLAR_LAB_DISKS"), ",")
	if i >= len(disks) || disks[i] == "" {
		t.Fatalf("this guest has no spare disk %d (PILLAR_LAB_DISKS=%q)", i, os.Getenv("PILLAR_LAB_DISKS"))
	}
	if err := zeroEnds(disks[i]); err != nil {
		t.Fatalf("clear %s: %v", disks[i], err)
	}
	return disks[i]
}

// zeroEnds zeroes the first and last MiB of a disk nobody holds.
func zeroEnds(disk string) (err error) {
	f, err := os.OpenFile(disk, os.O_WRONLY|os.O_EXCL, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	zero := make([]byte, min(size, 1<<20))
	for _, at := range []int64{0, size - int64(len(zero))} {
		if _, err := f.WriteAt(zero, at); err != nil {
			return fmt.Errorf("at byte %d: %w", at, err)
		}
	}
	return f.Sync()
}
