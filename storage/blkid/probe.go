// Package blkid answers what is on a block device, by reading it: no program, no udev, no
// cache. It exists to prove that a device is blank before anyone formats it, so it knows
// three answers, not two:
//
//	blank    every place was read and nothing known is there
//	known    exactly one thing is there, and its name
//	an error anything else: a read that failed, a short device, two things at once
//
// Places it reads: the first and the last MiB in full, and every offset below them at
// which a known superblock, label or backup superblock lives. Names and offsets are those
// of libblkid (util-linux, libblkid/src/superblocks and partitions) unless noted.
package blkid

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Window is how much of each end of a device is read in full, in bytes (block.md U-32).
const Window = 1 << 20

// Kind is one of the two proven answers.
type Kind int

// The proven answers. The zero Kind is none of them.
const (
	Blank Kind = iota + 1
	Known
)

// Result is a proven answer.
type Result struct {
	Kind Kind
	Type string // libblkid's name, as "ext4", "LVM2_member", "gpt"; empty when blank
}

func (r Result) String() string {
	if r.Kind == Blank {
		return "blank"
	}
	return r.Type
}

// ErrAmbiguous is a device that carries the marks of several things. It is neither blank
// nor safe to use as one of them.
var ErrAmbiguous = errors.New("ambiguous content")

// Probe reads the device r of size bytes. An error means unknown: never take it for blank.
func Probe(r io.ReaderAt, size int64) (Result, error) {
	d, err := read(r, size)
	if err != nil {
		return Result{}, err
	}
	found, err := d.search(signatures)
	if err != nil {
		return Result{}, err
	}
	if len(found) == 0 && !zero(d.head) {
		found, err = d.search(backups(size))
	}
	if err != nil {
		return Result{}, err
	}
	return settle(found)
}

// device is a device whose two ends have been read.
type device struct {
	r          io.ReaderAt
	size       int64
	head, tail []byte
}

func read(r io.ReaderAt, size int64) (*device, error) {
	if size <= 0 {
		return nil, fmt.Errorf("probe: device size is %d bytes", size)
	}
	d := &device{r: r, size: size}
	n := min(size, Window)
	var err error
	if d.head, err = d.fetch(0, n); err != nil {
		return nil, err
	}
	if d.tail, err = d.fetch(size-n, n); err != nil {
		return nil, err
	}
	return d, nil
}

// fetch reads exactly n bytes at off from the device.
func (d *device) fetch(off, n int64) ([]byte, error) {
	b := make([]byte, n)
	got, err := d.r.ReadAt(b, off)
	if int64(got) == n {
		return b, nil // io.ReaderAt may add io.EOF at the very end
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("probe: read %d bytes at %d: %w", n, off, err)
}

// at answers n bytes at off, or nil when they do not lie within the device.
func (d *device) at(off, n int64) ([]byte, error) {
	if off < 0 || n > d.size || off > d.size-n {
		return nil, nil
	}
	if off+n <= int64(len(d.head)) {
		return d.head[off : off+n], nil
	}
	if start := d.size - int64(len(d.tail)); off >= start {
		return d.tail[off-start : off-start+n], nil
	}
	return d.fetch(off, n)
}

// search answers the names of all signatures present, each once.
func (d *device) search(table []signature) ([]string, error) {
	var found []string
	for _, s := range table {
		for _, off := range s.at(d.size) {
			name, err := d.match(s, off)
			if err != nil {
				return nil, fmt.Errorf("look for %s: %w", s.name, err)
			}
			if name != "" && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	return found, nil
}

func (d *device) match(s signature, off int64) (string, error) {
	b, err := d.at(off, int64(len(s.magic)))
	if err != nil || b == nil || string(b) != s.magic {
		return "", err
	}
	if s.refine == nil {
		return s.name, nil
	}
	return s.refine(d, off)
}

// settle turns what was found into one answer. A boot sector's 55 AA belongs to the
// filesystem or the GPT around it, and one without a partition says nothing beside
// something else.
func settle(found []string) (Result, error) {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(found, n) })
	}
	drop := func(name string) {
		found = slices.DeleteFunc(found, func(n string) bool { return n == name })
	}
	if has("gpt", "vfat", "ntfs", "exfat", "BitLocker") {
		drop("dos")
		drop(emptyMBR)
	}
	if len(found) > 1 {
		drop(emptyMBR)
	}
	switch len(found) {
	case 0:
		return Result{Kind: Blank}, nil
	case 1:
		return Result{Kind: Known, Type: found[0]}, nil
	}
	return Result{}, fmt.Errorf("probe: %w: %s", ErrAmbiguous, strings.Join(found, ", "))
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
