package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// programDirs are the directories whose files are programs.
var programDirs = []string{"/usr/bin", "/usr/sbin"}

// triplets name the library directory of a machine, see Debian's multiarch.
var triplets = map[elf.Machine]string{
	elf.EM_X86_64:  "x86_64-linux-gnu",
	elf.EM_AARCH64: "aarch64-linux-gnu",
}

// closure collects files of a package tree with merged /usr.
type closure struct {
	root  string
	files map[string]File // by path in the image
}

func (c *closure) add(f File) { c.files[f.Path] = f }

func (c *closure) list() []File {
	var out []File
	for _, p := range slices.Sorted(maps.Keys(c.files)) {
		out = append(out, c.files[p])
	}
	return out
}

// frame adds what no package brings: links, mount points, our configuration.
func (c *closure) frame() {
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		c.add(File{Path: "/" + dir, Link: "usr/" + dir})
	}
	for _, dir := range []string{"/run/lock/lvm", "/proc", "/sys", "/dev"} {
		c.add(File{Path: dir})
	}
	c.add(File{Path: "/tmp", Mode: 0o1777})
	c.add(File{Path: "/etc/lvm/lvm.conf", Data: lvmConf})
	c.add(File{Path: "/etc/mtab", Link: "/proc/self/mounts"}) // xfs_growfs reads it
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

// packageFile adds a package's file if it is a program or configuration.
func (c *closure) packageFile(p string) error {
	p = merged(p)
	if slices.Contains(configuration, p) {
		c.add(File{Path: p, Source: c.root + p, Mode: 0o644})
		return nil
	}
	if !slices.Contains(programDirs, path.Dir(p)) || slices.Contains(leftOut, path.Base(p)) {
		return nil
	}
	if target, err := os.Readlink(c.root + p); err == nil {
		c.add(File{Path: p, Link: target})
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
	c.add(File{Path: p, Source: c.root + p})
	needed, err := needs(f)
	if err != nil {
		return fmt.Errorf("libraries of %s: %w", p, err)
	}
	for _, name := range needed {
		if err := c.library(name); err != nil {
			return fmt.Errorf("%s needs %s: %w", p, name, err)
		}
	}
	return nil
}

// needs answers the paths of a program's libraries and interpreter.
func needs(f *elf.File) ([]string, error) {
	names, err := f.ImportedLibraries()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	triplet, ok := triplets[f.Machine]
	if !ok {
		return nil, fmt.Errorf("machine %v is unknown", f.Machine)
	}
	for i, name := range names {
		if !path.IsAbs(name) {
			names[i] = "/usr/lib/" + triplet + "/" + name
		}
	}
	interp := f.Section(".interp")
	if interp == nil {
		return names, nil
	}
	data, err := interp.Data()
	return append(names, strings.TrimRight(string(data), "\x00")), err
}

// library adds a library: the link of that path, if it is one, and the file behind it.
func (c *closure) library(name string) error {
	name = merged(name)
	target, err := os.Readlink(c.root + name)
	if err != nil {
		return c.program(name)
	}
	c.add(File{Path: name, Link: target})
	if !path.IsAbs(target) {
		target = path.Join(path.Dir(name), target)
	}
	return c.library(target)
}
