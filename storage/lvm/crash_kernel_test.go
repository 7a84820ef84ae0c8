package lvm_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/lvm"
)

func unended() context.Context { return context.Background() }

const crashed = "pvc-crashed"

// N-9, B-222, H-37: the agent dies at any moment of a create, on extents full of a deleted
// claim's data. The LV then is absent, unfinished, or blank; the same create again ends in
// one LV that is blank and finished.
func TestGroup_createCrash_kernel(t *testing.T) {
	hosttest.Need(t, "dm_mod", "bin:lvm")
	if !hosttest.InChild(t) {
		emptyGroup(t)
		soil(t, group(), spec)
	}
	walkCreate(t, group(), spec)
}

// The same in a thin pool whose chunks are full of a deleted claim's data.
func TestGroup_createThinCrash_kernel(t *testing.T) {
	hosttest.Need(t, "dm_mod", "bin:lvm")
	if !hosttest.InChild(t) {
		soil(t, thinPool(t, 20), thin)
	}
	walkCreate(t, thinGroup(), thin)
}

func walkCreate(t *testing.T, g *lvm.Group, spec func(string, int64) storage.Spec) {
	create := func() error {
		_, err := g.Create(unended(), spec(crashed, 8<<20))
		return err
	}
	hosttest.EachCrash(t, create, func(t *testing.T) {
		if _, err := g.Activate(t.Context(), crashed, owner); err == nil {
			wantBlank(t)
		}
		if err := create(); err != nil {
			t.Fatalf("Create again = %v", err)
		}
		wantBlank(t)
		if got := tags(t, crashed); got != ownerTag {
			t.Errorf("tags = %q, want %s alone", got, ownerTag)
		}
		write(t, 0xa5) // for the next round's extents
		if err := g.Delete(t.Context(), crashed, owner); err != nil {
			t.Errorf("Delete = %v", err)
		}
	})
}

// The agent dies at any moment of a delete: again, and it is gone, its neighbour is not.
func TestGroup_deleteCrash_kernel(t *testing.T) {
	hosttest.Need(t, "dm_mod", "bin:lvm")
	if !hosttest.InChild(t) {
		g := emptyGroup(t)
		for _, name := range []string{crashed, "neighbour"} {
			if _, err := g.Create(t.Context(), spec(name, 8<<20)); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func() error { return group().Delete(unended(), crashed, owner) }
	hosttest.EachCrash(t, remove, func(t *testing.T) {
		if err := remove(); err != nil {
			t.Errorf("Delete again = %v", err)
		}
		list, err := group().List(t.Context())
		if err != nil || len(list) != 1 || list[0].ID.Name != "neighbour" {
			t.Errorf("List = %v, %v, want the neighbour alone", list, err)
		}
		if _, err := group().Create(t.Context(), spec(crashed, 8<<20)); err != nil {
			t.Fatal(err)
		}
	})
}

// soil fills the extents the next volume will get.
func soil(t *testing.T, g *lvm.Group, spec func(string, int64) storage.Spec) {
	t.Helper()
	if _, err := g.Create(t.Context(), spec(crashed, 8<<20)); err != nil {
		t.Fatal(err)
	}
	write(t, 0xa5)
	if err := g.Delete(t.Context(), crashed, owner); err != nil {
		t.Fatal(err)
	}
}

const crashedPath = "/dev/" + vg + "/" + crashed

// write fills the first and last MiB.
func write(t *testing.T, data byte) {
	t.Helper()
	f, err := blockdev.Open(crashedPath, os.O_WRONLY)
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte{data}, 1<<20)
	_, start := f.WriteAt(content, 0)
	_, end := f.WriteAt(content, 7<<20)
	if err := errors.Join(start, end, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// read answers the first and last MiB.
func read(t *testing.T) []byte {
	t.Helper()
	f, err := blockdev.Open(crashedPath, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 2<<20)
	_, start := f.ReadAt(content[:1<<20], 0)
	_, end := f.ReadAt(content[1<<20:], 7<<20)
	if err := errors.Join(start, end, f.Close()); err != nil {
		t.Fatal(err)
	}
	return content
}

func wantBlank(t *testing.T) {
	t.Helper()
	if !bytes.Equal(read(t), make([]byte, 2<<20)) {
		t.Error("the volume shows old content")
	}
}
