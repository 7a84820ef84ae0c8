package nvmet

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

// linkCases say what a link may rely on.
var linkCases = map[string]func(t *testing.T, fix fixture){
	"a volume that was not prepared is not linked": func(t *testing.T, fix fixture) {
		_, tgt := fix(t)
		wantNoLink(t, tgt, export(nil), transport.ErrNotFound)
	},
	"nor one whose prepare broke off before it was enabled": func(t *testing.T, fix fixture) {
		_, tgt := fix(t)
		must(t, tgt.Prepare(t.Context(), export(disabled), free))
		wantNoLink(t, tgt, export(nil), transport.ErrNotFound)
		exporting(disabled)(t, tgt) // as asked
	},
	"nor one of another device": func(t *testing.T, fix fixture) {
		_, tgt := fix(t)
		must(t, tgt.Prepare(t.Context(), export(nil), free))
		other := export(func(e *transport.Export) { e.DevicePath = device2 })
		wantNoLink(t, tgt, other, transport.ErrPrecondition)
	},
	"a port that went idle is set up again": func(t *testing.T, fix fixture) {
		_, tgt := fix(t)
		exporting(inCapsule(8192))(t, tgt)
		must(t, tgt.Unexport(t.Context(), volume, device))
		exporting(inCapsule(16384))(t, tgt) // idle: takes it
		must(t, tgt.Unexport(t.Context(), volume, device))
		exporting(inCapsule(8192))(t, tgt) // the first wish again
		wantNoLink(t, tgt, prepared(t, tgt, second, inCapsule(16384)), transport.ErrPrecondition)
		exporting(second, inCapsule(8192))(t, tgt)
	},
	"a port that somebody removed is made again": func(t *testing.T, fix fixture) {
		k, tgt := fix(t)
		exporting()(t, tgt)
		must(t, k.Clear())
		exporting(second)(t, tgt)
		exporting()(t, tgt)
	},
}

// prepared prepares an export and answers it.
func prepared(t *testing.T, tgt *Target, changes ...func(*transport.Export)) transport.Export {
	t.Helper()
	e := changed(changes...)
	must(t, tgt.Prepare(t.Context(), e, free))
	return e
}

func wantNoLink(t *testing.T, tgt *Target, e transport.Export, want error) {
	t.Helper()
	if got, err := tgt.Link(t.Context(), e); !errors.Is(err, want) {
		t.Errorf("Link(%s) = %v, %v, want %v", e.Volume, got, err, want)
	}
}

func TestTarget_Link(t *testing.T) {
	for name, check := range linkCases {
		t.Run(name, func(t *testing.T) { check(t, inMemory) })
	}
}

// counting counts the directories that are read.
type counting struct {
	configfs.FS
	lists int
}

func (c *counting) ReadDir(name string) ([]string, error) {
	c.lists++
	return c.FS.ReadDir(name)
}

// What one more link costs does not grow with those that are there.
func TestTarget_Link_many(t *testing.T) {
	c := &counting{FS: configfstest.New()}
	tgt := New(configfs.On(c), Config{IdentityDir: t.TempDir()})
	for i := range 20 {
		e := export(func(e *transport.Export) { e.Volume, e.DevicePath = fmt.Sprint("vg0/", i), fmt.Sprint("/dev/vg0/", i) })
		must(t, tgt.Prepare(t.Context(), e, free))
		if i == 1 {
			c.lists = 0
		}
		if _, err := tgt.Link(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if c.lists > 0 {
		t.Errorf("19 links read %d directories, want none", c.lists)
	}
}

func TestTarget_Link_kernel(t *testing.T) {
	hosttest.Need(t, "nvmet", "nvmet_tcp")
	for name, check := range linkCases {
		t.Run(name, func(t *testing.T) { check(t, onKernel) })
	}
}
