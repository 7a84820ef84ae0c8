package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/e2e/cluster/oci"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// The tools layer of pillar's image: what the packages of deploy/image/packages.txt put
// into the directories of programs, and every library those programs load. Scripts are
// left out, the image has no shell. /bin, /sbin and /lib are links into /usr as in Debian.

// toolFiles answers the files of the tools layer. root is the guests' package tree, which
// holds the same packages and, for the libraries, what they depend on.
func toolFiles(ctx context.Context, cache *artifacts.Cache, root, repo string) ([]oci.File, error) {
	list, err := os.ReadFile(filepath.Join(repo, "deploy", "image", "packages.txt"))
	if err != nil {
		return nil, fmt.Errorf("list of the image's packages: %w", err)
	}
	c := &closure{root: root, files: map[string]oci.File{}}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		c.add(oci.File{Path: "/" + dir, Link: "usr/" + dir})
	}
	for _, name := range strings.Fields(string(list)) {
		deb, err := cache.Package(ctx, name)
		if err != nil {
			return nil, err
		}
		if err := c.packageFiles(ctx, deb); err != nil {
			return nil, fmt.Errorf("programs of package %s: %w", name, err)
		}
	}
	for _, dir := range []string{"/run/lock/lvm", "/proc", "/sys", "/dev"} {
		c.add(oci.File{Path: dir})
	}
	c.add(oci.File{Path: "/tmp", Mode: 0o1777})
	c.add(oci.File{Path: "/etc/lvm/lvm.conf", Source: filepath.Join(repo, "deploy", "image", "lvm.conf"), Mode: 0o644})
	c.add(oci.File{Path: "/etc/mtab", Link: "/proc/self/mounts"})
	return c.list(), nil
}

// closure collects files of a merged-/usr package tree.
type closure struct {
	root  string
	files map[string]oci.File // by path in the image
}

func (c *closure) add(f oci.File) { c.files[f.Path] = f }

func (c *closure) list() []oci.File {
	var out []oci.File
	for _, f := range c.files {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b oci.File) int { return strings.Compare(a.Path, b.Path) })
	return out
}

// packageFiles adds the programs and the configuration of one package.
func (c *closure) packageFiles(ctx context.Context, deb string) error {
	data, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb).Output()
	if err != nil {
		return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	in := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if err := c.packageFile(merged(path.Clean("/" + h.Name))); err != nil {
			return err
		}
	}
}

// merged is the place of a package's path in a tree with merged /usr.
func merged(p string) string {
	for _, dir := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(p, dir) {
			return "/usr" + p
		}
	}
	return p
}

func (c *closure) packageFile(p string) error {
	switch {
	case p == "/etc/mke2fs.conf":
		c.add(oci.File{Path: p, Source: c.root + p, Mode: 0o644})
		return nil
	case path.Dir(p) != "/usr/bin" && path.Dir(p) != "/usr/sbin":
		return nil
	}
	if target, err := os.Readlink(c.root + p); err == nil {
		c.add(oci.File{Path: p, Link: target})
		return nil
	}
	return c.program(p)
}

// program adds an ELF file, its interpreter and its libraries; a script is skipped.
func (c *closure) program(p string) error {
	if _, done := c.files[p]; done {
		return nil
	}
	f, err := elf.Open(c.root + p)
	var format *elf.FormatError
	if errors.As(err, &format) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	c.add(oci.File{Path: p, Source: c.root + p})
	needed, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", p, err)
	}
	if interp := f.Section(".interp"); interp != nil {
		data, err := interp.Data()
		if err != nil {
			return fmt.Errorf("interpreter of %s: %w", p, err)
		}
		needed = append(needed, strings.TrimRight(string(data), "\x00"))
	}
	for _, name := range needed {
		if err := c.library(name); err != nil {
			return fmt.Errorf("%s needs %s: %w", p, name, err)
		}
	}
	return nil
}

// library adds a library by its soname or path: the link of that name, if it is one, and
// the file behind it.
func (c *closure) library(name string) error {
	if !path.IsAbs(name) {
		name = "/usr/lib/x86_64-linux-gnu/" + name
	}
	name = merged(name)
	target, err := os.Readlink(c.root + name)
	if err != nil {
		return c.program(name)
	}
	c.add(oci.File{Path: name, Link: target})
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(name), target)
	}
	return c.library(target)
}
