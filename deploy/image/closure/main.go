// Command closure copies the files of pillar's image, without the binary, out of a Debian
// system that has the packages installed. The Dockerfile runs it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pillar-csi/pillar/deploy/image"
)

func main() {
	root := flag.String("root", "/", "tree in which the packages are installed")
	lists := flag.String("lists", "/var/lib/dpkg/info", "folder of dpkg's PACKAGE.list files")
	out := flag.String("out", "", "folder to make with the image's files")
	flag.Parse()
	if err := run(*root, *lists, *out); err != nil {
		fmt.Fprintln(os.Stderr, "closure:", err)
		os.Exit(1)
	}
}

func run(root, lists, out string) error {
	if out == "" {
		return errors.New("-out is missing")
	}
	files, err := image.Files(strings.TrimSuffix(root, "/"), func(pkg string) ([]string, error) { return listed(lists, pkg) })
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := put(f, filepath.Join(out, f.Path)); err != nil {
			return fmt.Errorf("copy %s: %w", f.Path, err)
		}
	}
	return nil
}

// listed reads the paths of a package: PACKAGE.list, or PACKAGE:ARCHITECTURE.list where a
// package may be installed for several.
func listed(dir, pkg string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(dir, pkg+".list"))
	if errors.Is(err, fs.ErrNotExist) {
		var found []string
		if found, err = filepath.Glob(filepath.Join(dir, pkg+":*.list")); err != nil || len(found) != 1 {
			return nil, fmt.Errorf("%s has %d lists of it, want one (%w)", dir, len(found), errors.Join(fs.ErrNotExist, err))
		}
		data, err = os.ReadFile(found[0])
	}
	return strings.Fields(string(data)), err
}

func put(f image.File, at string) error {
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(f.Mode & 0o777)
	switch {
	case mode == 0 && f.Data != nil:
		mode = 0o644
	case mode == 0:
		mode = 0o755
	}
	if f.Mode&0o1000 != 0 {
		mode |= fs.ModeSticky
	}
	var err error
	switch data := f.Data; {
	case f.Link != "":
		return os.Symlink(f.Link, at)
	case f.Source != "":
		if data, err = os.ReadFile(f.Source); err != nil {
			return err
		}
		err = os.WriteFile(at, data, 0o600)
	case data != nil:
		err = os.WriteFile(at, data, 0o600)
	default:
		err = os.MkdirAll(at, 0o755)
	}
	return errors.Join(err, os.Chmod(at, mode)) // whatever the umask is
}
