package lab

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// initrd is a file tree for the kernel to boot from: a cpio archive in the "newc" format of
// Documentation/driver-api/early-userspace/buffer-format.rst.
type initrd struct {
	out  bytes.Buffer
	dirs []string // made so far
	inos int
}

// add puts a file into the tree, making its directories.
func (c *initrd) add(name string, mode uint32, data []byte) {
	c.dir(path.Dir(name))
	c.entry(name, 0o100000|mode, data)
}

func (c *initrd) addFile(name string, mode uint32, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	c.add(name, mode, data)
	return nil
}

func (c *initrd) dir(name string) {
	if name == "." || slices.Contains(c.dirs, name) {
		return
	}
	c.dir(path.Dir(name))
	c.dirs = append(c.dirs, name)
	c.entry(name, 0o040755, nil)
}

func (c *initrd) entry(name string, mode uint32, data []byte) {
	c.inos++
	fmt.Fprintf(&c.out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.inos, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	c.out.WriteString(name + "\x00")
	c.pad()
	c.out.Write(data)
	c.pad()
}

func (c *initrd) pad() {
	for c.out.Len()%4 != 0 {
		c.out.WriteByte(0)
	}
}

// WriteTo ends the archive and writes it.
func (c *initrd) WriteTo(w io.Writer) (int64, error) {
	c.entry("TRAILER!!!", 0, nil)
	return c.out.WriteTo(w)
}

// loadOrder returns the files of modules and all they need, in an order in which they can be
// loaded one by one. The text is modules.dep: "a.ko: b.ko c.ko", needed ones last to first.
// Modules that are not in it are built in.
func loadOrder(dep string, modules []string) []string {
	needs := map[string][]string{}
	for line := range strings.Lines(dep) {
		file, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		list := append([]string{file}, strings.Fields(rest)...)
		slices.Reverse(list)
		name := strings.TrimSuffix(filepath.Base(file), ".ko")
		needs[strings.ReplaceAll(name, "-", "_")] = list
	}
	var order []string
	for _, m := range modules {
		for _, file := range needs[strings.ReplaceAll(m, "-", "_")] {
			if !slices.Contains(order, file) {
				order = append(order, file)
			}
		}
	}
	return order
}
