//go:build lab

package cluster

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/deploy/image"
)

// TestToolsLayer holds the lab's tools layer to what the Dockerfile makes: the command of
// its last step but one, run on the guests' package tree with lists as dpkg writes them.
func TestToolsLayer(t *testing.T) {
	cache, repo, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	made, err := build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	root, err := cache.ZFSRoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lists := t.TempDir()
	for _, pkg := range image.Packages() {
		deb, err := cache.Package(t.Context(), pkg)
		if err != nil {
			t.Fatal(err)
		}
		writeList(t, deb, filepath.Join(lists, pkg+".list"))
	}
	command, out := filepath.Join(t.TempDir(), "closure"), filepath.Join(t.TempDir(), "image")
	if err := goBuild(t.Context(), repo, command, "./deploy/image/closure", ""); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command(command, "-root", root, "-lists", lists, "-out", out).CombinedOutput(); err != nil {
		t.Fatalf("closure: %v: %s", err, said)
	}
	if diff := cmp.Diff(layerEntries(t, filepath.Join(made.images, toolsLayer)), treeEntries(t, out)); diff != "" {
		t.Errorf("the lab's tools layer and the Dockerfile's files (-lab +Dockerfile):\n%s", diff)
	}
}

// writeList writes a package's paths, folders included, as /var/lib/dpkg/info has them.
func writeList(t *testing.T, deb, at string) {
	t.Helper()
	names, err := exec.Command("sh", "-c", `dpkg-deb --fsys-tarfile "$1" | tar -t`, "sh", deb).Output()
	if err != nil {
		t.Fatalf("list %s: %v", deb, err)
	}
	var lines strings.Builder
	for name := range strings.Lines(string(names)) {
		lines.WriteString(filepath.Clean("/"+strings.TrimSpace(name)) + "\n")
	}
	if err := os.WriteFile(at, []byte(lines.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// entry is what a test can see of a file: mode, size, link target.
type entry struct {
	Mode fs.FileMode
	Size int64
	Link string
}

func layerEntries(t *testing.T, layer string) map[string]entry {
	t.Helper()
	f, err := os.Open(layer)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]entry{}
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Clean(h.Name)] = entry{Mode: h.FileInfo().Mode(), Size: h.Size, Link: h.Linkname}
	}
}

func treeEntries(t *testing.T, root string) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		e := entry{Mode: info.Mode()}
		switch {
		case info.Mode().IsRegular():
			e.Size = info.Size()
		case info.Mode()&fs.ModeSymlink != 0:
			e.Link, err = os.Readlink(p)
		}
		rel, _ := filepath.Rel(root, p) // p is below root
		all[rel] = e
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
