package durable_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/storage/host/durable/durabletest"
)

const path = "/state/record"

func read(t *testing.T, f *durabletest.FS) string {
	t.Helper()
	data, err := f.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatalf("ReadFile(%s) = %v", path, err)
	}
	if err != nil {
		return "absent"
	}
	return string(data)
}

// N-6: a power cut at every step leaves the old content or the new one; once Write has
// answered success, only the new one (B-156).
func TestWrite_powerCut(t *testing.T) {
	for name, old := range map[string]string{"first": "absent", "replace": "old"} {
		t.Run(name, func(t *testing.T) {
			setup := func(f *durabletest.FS) {
				if old != "absent" {
					f.Put(path, []byte(old))
				}
			}
			write := func(f *durabletest.FS) error { return durable.WriteTo(f, path, []byte("new content"), 0o600) }
			durabletest.EachCrash(t, setup, write, func(t *testing.T, f *durabletest.FS, err error) {
				got := read(t, f)
				if err == nil && got != "new content" || got != "new content" && got != old {
					t.Errorf("after Write = %v the file holds %q", err, got)
				}
			})
		})
	}
}

func TestRemove_powerCut(t *testing.T) {
	setup := func(f *durabletest.FS) { f.Put(path, []byte("old")) }
	remove := func(f *durabletest.FS) error { return durable.RemoveFrom(f, path) }
	durabletest.EachCrash(t, setup, remove, func(t *testing.T, f *durabletest.FS, err error) {
		got := read(t, f)
		if err == nil && got != "absent" || got != "absent" && got != "old" {
			t.Errorf("after Remove = %v the file holds %q", err, got)
		}
	})
}

// An error before the rename changes nothing (B-156), and the next write works.
func TestWrite_error(t *testing.T) {
	eio := errors.New("input/output error")
	setup := func(f *durabletest.FS) { f.Put(path, []byte("old")) }
	write := func(f *durabletest.FS) error { return durable.WriteTo(f, path, []byte("new"), 0o600) }
	durabletest.EachError(t, eio, setup, write, func(t *testing.T, f *durabletest.FS, err error) {
		if !errors.Is(err, eio) {
			t.Errorf("Write = %v, want %v", err, eio)
		}
		if got := read(t, f); got != "old" && got != "new" {
			t.Errorf("the file holds %q", got)
		}
		if err := write(f); err != nil || read(t, f) != "new" {
			t.Errorf("second Write = %v, file holds %q", err, read(t, f))
		}
	})
}

// The crash filesystem must find a writer that leaves out a sync, else it proves nothing.
func TestEachCrash_findsMissingSync(t *testing.T) {
	tests := map[string]func(f *durabletest.FS) error{
		"file not synced": func(f *durabletest.FS) error {
			w, _ := f.CreateTemp("/state", ".record.*.tmp", 0o600)
			w.Write([]byte("new"))
			w.Close()
			return errors.Join(f.Rename(w.Name(), path), f.SyncDir("/state"))
		},
		"directory not synced": func(f *durabletest.FS) error {
			w, _ := f.CreateTemp("/state", ".record.*.tmp", 0o600)
			w.Write([]byte("new"))
			w.Sync()
			w.Close()
			return f.Rename(w.Name(), path)
		},
	}
	for name, write := range tests {
		t.Run(name, func(t *testing.T) {
			f := durabletest.New()
			f.Put(path, []byte("old"))
			if err := write(f); err != nil {
				t.Fatal(err)
			}
			lost := false
			for _, image := range f.Images() {
				lost = lost || read(t, image) != "new"
			}
			if !lost {
				t.Error("no crash image lost the new content")
			}
		})
	}
}

func TestWrite_disk(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "record")
	for _, content := range []string{"one", "two"} {
		if err := durable.Write(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || string(got) != content {
			t.Errorf("after Write(%q) the file holds %q, %v", content, got, err)
		}
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode = %v, %v, want 0600", info.Mode(), err)
	}
	if err := errors.Join(durable.Remove(file), durable.Remove(file)); err != nil {
		t.Errorf("Remove twice = %v", err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 0 {
		t.Errorf("left in the directory: %v", left)
	}
}

func TestPrepare(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := durable.Prepare(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".record.1.tmp", ".other", "record.tmp", "record"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := durable.Prepare(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 3 {
		t.Errorf("Prepare left %v, want only the unfinished write gone", left)
	}
}

func TestDisk_ReadFile(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int{0, 1, 4095, 4096, 4097, 20000} {
		path := filepath.Join(dir, "file")
		want := bytes.Repeat([]byte{'x'}, size)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := (durable.Disk{}).ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("ReadFile of %d bytes = %d, %v", size, len(got), err)
		}
	}
	if _, err := (durable.Disk{}).ReadFile(filepath.Join(dir, "absent")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadFile of nothing = %v, want ErrNotExist", err)
	}
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := (durable.Disk{}).ReadFile(pipe); err == nil && len(data) > 0 {
		t.Errorf("ReadFile of a pipe that nobody writes to = %q, want nothing, at once", data)
	}
	if data, err := (durable.Disk{}).ReadFile(dir); err == nil {
		t.Errorf("ReadFile of a directory = %q, want an error", data)
	}
}
