package lvm_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/lvm"
)

// slowDisk is a device on the second spare disk, whose reads a test lets hang. It begins
// after the disk's start, so that no PV is seen twice.
type slowDisk struct {
	testing.TB
	disk string
}

const (
	slowName = "pillar-slow"
	slowVG   = "pillar-slow0"
)

func newSlowDisk(t testing.TB) slowDisk {
	t.Helper()
	hosttest.Need(t, "dm_delay", "bin:dmsetup")
	s := slowDisk{t, hosttest.Disk(t, 1)}
	remove := func() {
		_, _ = distribution(unended(), "vgremove", "--yes", "--force", slowVG)
		_, _ = distribution(unended(), "dmsetup", "remove", "--retry", slowName)
	}
	remove() // of a test that was killed
	tool(t, "dmsetup", "create", slowName, "--table", s.table(""))
	t.Cleanup(func() { s.load(""); remove() })
	tool(t, "vgcreate", "--yes", slowVG, "/dev/mapper/"+slowName)
	return s
}

func (s slowDisk) table(delay string) string {
	target := "linear"
	if delay != "" {
		target = "delay"
	}
	return fmt.Sprintf("0 131072 %s %s 2048 %s", target, s.disk, delay)
}

// load gives the device another table, with a delay in milliseconds. What is delayed by the
// former one ends.
func (s slowDisk) load(delay string) {
	s.Helper()
	for _, argv := range [][]string{{"suspend", slowName}, {"load", slowName, "--table", s.table(delay)}, {"resume", slowName}} {
		if _, err := distribution(unended(), append([]string{"dmsetup"}, argv...)...); err != nil {
			s.Error(err)
		}
	}
}

// B-204, H-26: a disk that does not answer. Its own group's calls end with their time; the
// other groups go on, as LVM remembers which disks are theirs (lvmhints, "hints" in
// lvm.conf(5)) and reads no others.
func TestGroup_hangingDisk_kernel(t *testing.T) {
	g := emptyGroup(t)
	disk := newSlowDisk(t)
	slow := lvm.New(host.Exec{}, "", lvm.Config{VolumeGroup: slowVG})
	for _, group := range []*lvm.Group{g, slow} { // from here on the hints are there
		if _, err := group.Pool(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	disk.load("600000")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	start := time.Now()
	if _, err := slow.Pool(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 20*time.Second {
		t.Errorf("Pool of the hanging group = %v after %s, want the end of its time", err, time.Since(start))
	}
	if _, err := g.Create(t.Context(), spec("pvc-1", extent)); err != nil {
		t.Errorf("Create beside it = %v", err)
	}
	if _, err := g.Expand(t.Context(), "pvc-1", owner, 2*extent); err != nil {
		t.Errorf("Expand beside it = %v", err)
	}
	if err := g.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete beside it = %v", err)
	}
	disk.load("")
	if _, err := slow.Pool(t.Context()); err != nil {
		t.Errorf("Pool of the group that hung = %v", err)
	}
}
