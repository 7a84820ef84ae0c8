package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// faulty is a device-mapper device over a disk, some sectors of which fail to read.
type faulty struct {
	t       *testing.T
	disk    string
	sectors int64
}

const faultyName = "pillar-node-faulty"

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	disk := hosttest.Disk(t, 0)
	bytes, err := blockdev.Size(disk)
	if err != nil {
		t.Fatal(err)
	}
	f := &faulty{t: t, disk: disk, sectors: bytes / 512}
	f.dmsetup("create", faultyName, "--table", fmt.Sprintf("0 %d linear %s 0", f.sectors, disk))
	t.Cleanup(func() { f.dmsetup("remove", "--retry", faultyName) })
	return f
}

func (f *faulty) path() string { return filepath.Join("/dev/mapper", faultyName) }

func (f *faulty) dmsetup(args ...string) {
	f.t.Helper()
	ctx := context.WithoutCancel(f.t.Context()) // it runs in a cleanup, too
	if _, err := (host.Exec{}).Run(ctx, "dmsetup", args...); err != nil {
		f.t.Fatal(err)
	}
}

// fail makes n sectors from at fail; n 0: none.
func (f *faulty) fail(at, n int64) {
	f.t.Helper()
	table := ""
	if at > 0 {
		table += fmt.Sprintf("0 %d linear %s 0\n", at, f.disk)
	}
	if n > 0 {
		table += fmt.Sprintf("%d %d error\n", at, n)
	}
	if end := at + n; end < f.sectors {
		table += fmt.Sprintf("%d %d linear %s %d\n", end, f.sectors-end, f.disk, end)
	}
	file := filepath.Join(f.t.TempDir(), "table")
	if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
		f.t.Fatal(err)
	}
	f.dmsetup("suspend", faultyName)
	f.dmsetup("load", faultyName, file)
	f.dmsetup("resume", faultyName)
}

// TestKernel_Unreadable is hazard H-1: a device that cannot be read is not blank.
func TestKernel_Unreadable(t *testing.T) {
	need(t)
	hosttest.Need(t, "dm_mod", "bin:dmsetup")
	f := newFaulty(t)
	w := newWorker(t, f.path())
	places := map[string]struct{ at, n int64 }{
		"first sector": {0, 8},
		"64 KiB":       {128, 8},
		"last sector":  {f.sectors - 8, 8},
		"all of it":    {0, f.sectors},
	}
	for _, state := range []string{"blank", "formatted"} {
		for name, bad := range places {
			t.Run(state+", "+name, func(t *testing.T) {
				before := (&worker{t: t, backer: f.disk}).sum()
				f.fail(bad.at, bad.n)
				if err := w.stage(writer); csiserve.CodeOf(err) != csiserve.Internal {
					t.Errorf("stage = %v, want Internal", err)
				}
				f.fail(0, 0)
				if (&worker{t: t, backer: f.disk}).sum() != before {
					t.Error("the device was written to")
				}
				w.nothingLeft()
			})
		}
		w.must(w.stage(writer)) // readable again: formatted once, mounted from then on
		w.must(w.publish(writer, "pod", false))
		if state == "blank" {
			w.must(os.WriteFile(w.podPath("pod/data"), []byte("kept"), 0o600))
		}
		if got, err := os.ReadFile(w.podPath("pod/data")); err != nil || string(got) != "kept" {
			t.Errorf("the pod reads %q, %v", got, err)
		}
		w.must(w.unpublish("pod"))
		w.must(w.unstage())
	}
}
