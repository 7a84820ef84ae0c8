package zfs_test

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

const (
	crashed = "pvc-crashed"
	size    = 8 << 20
)

// wantWhole holds what is below the parent to these finished zvols and nothing else: marked,
// and with their space reserved.
func wantWhole(t *testing.T, names ...string) {
	t.Helper()
	out := tool(t, "zfs", "list", "-Hp", "-r", "-d", "1", "-t", "volume", "-o", "name,volsize,refreservation,pillar-csi.bhyoo.com:volume", tank+"/"+parent)
	rows := strings.FieldsFunc(out, func(r rune) bool { return r == '\n' })
	if len(rows) != len(names) {
		t.Errorf("zvols are %q, want %q", rows, names)
	}
	for i, row := range rows {
		fields := strings.Split(row, "\t")
		volsize, _ := strconv.Atoi(fields[1])
		reserved, _ := strconv.Atoi(fields[2])
		if i >= len(names) || fields[0] != below+names[i] || fields[3] != string(owner) || reserved < volsize {
			t.Errorf("zvol %q, want one of %q, marked and reserved", row, names)
		}
	}
}

func needZFS(t testing.TB) { hosttest.Need(t, "zfs", "bin:zfs", "bin:zpool") }

// H-37: the agent dies at any moment of a create. The volume then is absent or whole; the
// same create again ends in one whole zvol.
func TestPool_createCrash_kernel(t *testing.T) {
	needZFS(t)
	if !hosttest.InChild(t) {
		emptyPool(t)
	}
	create := func() error {
		_, err := pool().Create(unended(), whole(crashed, size))
		return err
	}
	hosttest.EachCrash(t, create, func(t *testing.T) {
		p := pool()
		switch _, err := p.Inspect(t.Context(), crashed); {
		case err == nil:
			wantWhole(t, crashed)
		case !errors.Is(err, storage.ErrNotFound):
			t.Errorf("Inspect = %v, want the volume or ErrNotFound", err)
		}
		if err := create(); err != nil {
			t.Fatalf("Create again = %v", err)
		}
		wantWhole(t, crashed)
		f := open(t, "/dev/zvol/"+below+crashed, os.O_RDONLY)
		wantAlone(t, f)
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if err := p.Delete(t.Context(), crashed, owner); err != nil {
			t.Errorf("Delete = %v", err)
		}
	})
}

// H-37: a create that dies and is never repeated: delete leaves nothing of it.
func TestPool_createCrash_deleted_kernel(t *testing.T) {
	needZFS(t)
	if !hosttest.InChild(t) {
		emptyPool(t)
	}
	create := func() error {
		_, err := pool().Create(unended(), whole(crashed, size))
		return err
	}
	hosttest.EachCrash(t, create, func(t *testing.T) {
		if err := pool().Delete(t.Context(), crashed, owner); err != nil {
			t.Errorf("Delete = %v", err)
		}
		wantWhole(t)
	})
}

// The agent dies at any moment of a delete: again, and it is gone, its neighbour is not.
func TestPool_deleteCrash_kernel(t *testing.T) {
	needZFS(t)
	if !hosttest.InChild(t) {
		p := emptyPool(t)
		for _, name := range []string{crashed, "pvc-neighbour"} {
			if _, err := p.Create(t.Context(), spec(name, size)); err != nil {
				t.Fatal(err)
			}
		}
		open(t, "/dev/zvol/"+below+crashed, os.O_RDONLY).Close()
	}
	remove := func() error { return pool().Delete(unended(), crashed, owner) }
	hosttest.EachCrash(t, remove, func(t *testing.T) {
		if err := remove(); err != nil {
			t.Errorf("Delete again = %v", err)
		}
		wantWhole(t, "pvc-neighbour")
		if _, err := os.Lstat("/dev/zvol/" + below + crashed); !os.IsNotExist(err) {
			t.Errorf("the link of a deleted zvol = %v, want it gone", err)
		}
		if _, err := pool().Create(t.Context(), spec(crashed, size)); err != nil {
			t.Fatal(err)
		}
		open(t, "/dev/zvol/"+below+crashed, os.O_RDONLY).Close()
	})
}

// The agent dies at any moment of an expand: the volume has the old size or the new one, its
// data, and after the same expand again the new one, all of it reserved.
func TestPool_expandCrash_kernel(t *testing.T) {
	needZFS(t)
	path := "/dev/zvol/" + below + crashed
	if !hosttest.InChild(t) {
		if _, err := emptyPool(t).Create(t.Context(), spec(crashed, size)); err != nil {
			t.Fatal(err)
		}
		write(t, path, 0, 0xa5)
	}
	now, err := pool().Inspect(unended(), crashed)
	if err != nil {
		t.Fatal(err)
	}
	bytes := now.Bytes // another process: only the volume knows how large it is
	expand := func() error {
		_, err := pool().Expand(unended(), crashed, owner, bytes+size)
		return err
	}
	hosttest.EachCrash(t, expand, func(t *testing.T) {
		if err := expand(); err != nil {
			t.Fatalf("Expand again = %v", err)
		}
		bytes += size
		if v, err := pool().Inspect(t.Context(), crashed); err != nil || v.Bytes != bytes {
			t.Errorf("Inspect = %+v, %v, want %d bytes", v, err, bytes)
		}
		wantWhole(t, crashed)
		wantByte(t, path, 0, 0xa5)
	})
}

// The agent dies at any moment of an activation, and its links are stale.
func TestPool_activateCrash_kernel(t *testing.T) {
	needZFS(t)
	path := "/dev/zvol/" + below + crashed
	if !hosttest.InChild(t) {
		if _, err := emptyPool(t).Create(t.Context(), spec(crashed, size)); err != nil {
			t.Fatal(err)
		}
		stopUdev(t)
		_ = os.Remove(path)
	}
	activate := func() error {
		_, err := pool().Activate(unended(), crashed, owner)
		return err
	}
	hosttest.EachCrash(t, activate, func(t *testing.T) {
		if err := activate(); err != nil {
			t.Errorf("Activate again = %v", err)
		}
		wantByte(t, path, 0, 0)
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
		if err := os.Symlink("../../../../null", path); err != nil {
			t.Error(err)
		}
	})
}
