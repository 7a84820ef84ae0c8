// Package configfs is the only writer of configfs. A Dir is one directory of it:
//
//	/sys/kernel/config/              New(root)
//	└── nvmet/                       made by the module nvmet
//	    ├── hosts/<nqn>/             Dir.Mkdir makes the object and its attribute files
//	    └── subsystems/<nqn>/
//	        ├── attr_serial          Dir.Set writes and reads back
//	        └── allowed_hosts/<nqn>  Dir.Link
//
// Every effect can be repeated, is a crash point, and does not begin once its context has
// ended.
package configfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/crashpoint"
)

// FS is the filesystem below a Dir: names are slash-separated and relative to its root.
// Errors carry the kernel's errno. Two exist: the mounted configfs and package memory's.
type FS interface {
	Mkdir(name string) error
	Rmdir(name string) error
	Symlink(target, name string) error // target is a name too
	Unlink(name string) error
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, data []byte) error // one write(2), never creates the file
	ReadDir(name string) ([]string, error)    // sorted
	IsDir(name string) (bool, error)          // fs.ErrNotExist if there is nothing
}

// Dir is a directory of configfs, present or not.
type Dir struct {
	fs   FS
	name string
}

// New answers the configfs mounted at sys/kernel/config below root.
func New(root host.Root) Dir { return On(Kernel(root)) }

// On answers the root directory of f.
func On(f FS) Dir { return Dir{fs: f, name: "."} }

// Sub answers the directory elem below d. It does not look whether it exists.
func (d Dir) Sub(elem ...string) Dir {
	return Dir{d.fs, path.Join(append([]string{d.name}, elem...)...)}
}

// Name is d's path below the root of configfs.
func (d Dir) Name() string { return d.name }

// Base is the last element of d's path.
func (d Dir) Base() string { return path.Base(d.name) }

// Exists says whether d is a directory. Only the kernel's ENOENT is "no".
func (d Dir) Exists() (bool, error) {
	ok, err := d.fs.IsDir(d.name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return ok, err
}

// Mkdir makes the object d. One that exists is success.
func (d Dir) Mkdir(ctx context.Context) error {
	err := d.act(ctx, "mkdir "+d.name, func() error { return d.fs.Mkdir(d.name) })
	if errors.Is(err, fs.ErrExist) { // another writer was faster, or the kernel still holds the name
		if ok, look := d.Exists(); ok || look != nil {
			return look
		}
	}
	return err
}

// Rmdir removes the object d. One that is gone is success.
func (d Dir) Rmdir(ctx context.Context) error {
	if ok, err := d.Exists(); !ok || err != nil {
		return err
	}
	err := d.act(ctx, "rmdir "+d.name, func() error { return d.fs.Rmdir(d.name) })
	return gone(err)
}

// Link makes the symbolic link d/<target's base name> to target, which is how configfs
// connects two objects. A link that exists is success.
func (d Dir) Link(ctx context.Context, target Dir) error {
	name := path.Join(d.name, target.Base())
	err := d.act(ctx, "link "+name, func() error { return d.fs.Symlink(target.name, name) })
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.readBack(target.Base(), true)
}

// Unlink removes the link name from d. One that is gone is success.
func (d Dir) Unlink(ctx context.Context, name string) error {
	if ok, err := d.Linked(name); !ok || err != nil {
		return err
	}
	link := path.Join(d.name, name)
	err := gone(d.act(ctx, "unlink "+link, func() error { return d.fs.Unlink(link) }))
	if err != nil {
		return err
	}
	return d.readBack(name, false)
}

// readBack compares the presence of a link with what was just done.
func (d Dir) readBack(link string, want bool) error {
	got, err := d.Linked(link)
	if err == nil && got != want {
		err = &MismatchError{Attr: path.Join(d.name, link), Want: presence(want), Got: presence(got)}
	}
	return err
}

func presence(there bool) string {
	if there {
		return "linked"
	}
	return "unlinked"
}

// Linked looks for one link. Only a directory that is there can lack it.
func (d Dir) Linked(name string) (bool, error) {
	_, err := d.fs.IsDir(path.Join(d.name, name))
	if !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	_, err = d.fs.IsDir(d.name)
	return false, err
}

// List answers the names in d in order. It returns fs.ErrNotExist only when d is not there.
func (d Dir) List() ([]string, error) { return d.fs.ReadDir(d.name) }

// Read answers an attribute without its final newline.
func (d Dir) Read(attr string) (string, error) {
	data, err := d.fs.ReadFile(path.Join(d.name, attr))
	return strings.TrimSuffix(string(data), "\n"), err
}

// MismatchError is an attribute that took a write and reads otherwise.
type MismatchError struct {
	Attr      string // path below the root of configfs
	Want, Got string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s reads %q after writing %q", e.Attr, e.Got, e.Want)
}

// Set makes attr read value: an equal one is left alone, another is Put.
func (d Dir) Set(ctx context.Context, attr, value string) error {
	got, err := d.Read(attr)
	if err != nil || same(attr, got, value) {
		return err
	}
	return d.Put(ctx, attr, value)
}

// Put writes an attribute without looking at it first, and reads it back through a fresh open
// (block.md B-2). A different answer, once both are canonical, is a *MismatchError.
func (d Dir) Put(ctx context.Context, attr, value string) error {
	if err := d.Trigger(ctx, attr, value); err != nil {
		return err
	}
	got, err := d.Read(attr)
	if err != nil {
		return err
	}
	if !same(attr, got, value) {
		return &MismatchError{Attr: path.Join(d.name, attr), Want: value, Got: got}
	}
	return nil
}

// Trigger writes value and reads nothing back: for an attribute that only takes writes, such
// as nvmet's revalidate_size.
func (d Dir) Trigger(ctx context.Context, attr, value string) error {
	name := path.Join(d.name, attr)
	err := d.act(ctx, "set "+name, func() error { return d.fs.WriteFile(name, []byte(value)) })
	if err != nil {
		return fmt.Errorf("set %s to %q: %w", attr, value, err)
	}
	return nil
}

// same compares two values of attr in their canonical form: an nguid is written as 32
// digits and returns with dashes, and the kernel pads a serial with blanks.
func same(attr, a, b string) bool {
	switch attr {
	case "device_uuid", "device_nguid":
		undash := strings.NewReplacer("-", "", ":", "")
		return strings.EqualFold(undash.Replace(a), undash.Replace(b))
	case "attr_serial":
		return strings.TrimRight(a, " ") == strings.TrimRight(b, " ")
	}
	return a == b
}

// act runs one effect, unless ctx has ended. Nothing can end it once it began: a write
// that waits for I/O in flight takes as long as the device.
func (d Dir) act(ctx context.Context, what string, f func() error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	crashpoint.Before(crashpoint.Kernel, what)
	err := f()
	crashpoint.After(crashpoint.Kernel, what)
	return err
}

// gone turns "already removed" into success.
func gone(err error) error {
	if errors.Is(err, syscall.ENOENT) {
		return nil
	}
	return err
}
