package hosttest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage/host"
)

// Linear is a device-mapper device over the start of a disk, whose size a test changes
// while it is in use.
type Linear struct {
	Path string

	t          testing.TB
	name, disk string
}

// NewLinear makes the device name of so many bytes over the disk, until the test ends.
func NewLinear(t testing.TB, name, disk string, bytes int64) *Linear {
	t.Helper()
	Need(t, "dm_mod", "bin:dmsetup")
	l := &Linear{Path: "/dev/mapper/" + name, t: t, name: name, disk: disk}
	l.dmsetup("create", name, "--table", l.table(bytes))
	t.Cleanup(func() { l.dmsetup("remove", "--retry", name) })
	return l
}

// Resize gives the device so many bytes. Who has it open notices nothing.
func (l *Linear) Resize(bytes int64) {
	l.t.Helper()
	l.dmsetup("suspend", l.name)
	l.dmsetup("load", l.name, "--table", l.table(bytes))
	l.dmsetup("resume", l.name)
}

func (l *Linear) table(bytes int64) string { return fmt.Sprintf("0 %d linear %s 0", bytes/512, l.disk) }

func (l *Linear) dmsetup(args ...string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), time.Minute) // it runs in a cleanup, too
	defer cancel()
	if _, err := (host.Exec{}).Run(ctx, "dmsetup", args...); err != nil {
		l.t.Fatal(err)
	}
}
