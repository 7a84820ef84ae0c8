// Package configfstest holds a configfs to the kernel's rules for nvmet, the real one in a
// lab guest as well as the one of package memory, and records what either is asked to do:
// a package's order of writes is tested without a kernel and then held to one.
package configfstest

import (
	"path"
	"strings"
	"sync"

	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/memory"
)

// Kernel is a configfs with its trace. It implements configfs.FS.
type Kernel struct {
	configfs.FS

	// OnEffect, if set, is called before every effect with its trace line; an error stops
	// the effect and is its answer.
	OnEffect func(line string) error

	mu    sync.Mutex
	trace []string
}

// New answers a configfs in memory with the empty trees of nvmet.
func New() *Kernel { return Watch(memory.New(func(string) {})) }

// Watch answers fs with a trace.
func Watch(fs configfs.FS) *Kernel { return &Kernel{FS: fs} }

// Dir answers its root.
func (k *Kernel) Dir() configfs.Dir { return configfs.On(k) }

// Plant gives a directory of a configfs in memory an attribute of that value, past every
// rule: one that was changed behind the target's back, or that other kernels have.
func (k *Kernel) Plant(name, value string) { k.FS.(*memory.Kernel).Plant(name, value) }

// effect lets the test interfere, and records the line of what succeeded.
func (k *Kernel) effect(line string, do func() error) error {
	if k.OnEffect != nil {
		if err := k.OnEffect(line); err != nil {
			return err
		}
	}
	if err := do(); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trace = append(k.trace, line)
	return nil
}

// Trace answers the effects so far, one line each, in the order the kernel saw them, and
// forgets them.
func (k *Kernel) Trace() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.trace
	k.trace = nil
	return t
}

// Mkdir implements configfs.FS.
func (k *Kernel) Mkdir(name string) error {
	return k.effect("mkdir "+name, func() error { return k.FS.Mkdir(name) })
}

// Rmdir implements configfs.FS.
func (k *Kernel) Rmdir(name string) error {
	return k.effect("rmdir "+name, func() error { return k.FS.Rmdir(name) })
}

// Symlink implements configfs.FS.
func (k *Kernel) Symlink(target, name string) error {
	return k.effect("link "+name, func() error { return k.FS.Symlink(target, name) })
}

// Unlink implements configfs.FS.
func (k *Kernel) Unlink(name string) error {
	return k.effect("unlink "+name, func() error { return k.FS.Unlink(name) })
}

// WriteFile implements configfs.FS.
func (k *Kernel) WriteFile(name string, data []byte) error {
	return k.effect(setLine(name, data), func() error { return k.FS.WriteFile(name, data) })
}

func setLine(name string, data []byte) string {
	return "set " + name + " " + strings.TrimSuffix(string(data), "\n")
}

// Clear removes every object of nvmet, whoever made it.
func (k *Kernel) Clear() error {
	for _, links := range []string{"ports/*/subsystems/*", "subsystems/*/allowed_hosts/*"} {
		if err := k.each("nvmet", strings.Split(links, "/"), k.FS.Unlink); err != nil {
			return err
		}
	}
	for _, objects := range []string{"subsystems/*/namespaces/*", "subsystems/*", "ports/*", "hosts/*"} {
		if err := k.each("nvmet", strings.Split(objects, "/"), k.FS.Rmdir); err != nil {
			return err
		}
	}
	return nil
}

// each does something to everything below dir that the pattern names.
func (k *Kernel) each(dir string, pattern []string, do func(name string) error) error {
	if len(pattern) == 0 {
		return do(dir)
	}
	names := pattern[:1]
	if pattern[0] == "*" {
		var err error
		if names, err = k.ReadDir(dir); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := k.each(path.Join(dir, name), pattern[1:], do); err != nil {
			return err
		}
	}
	return nil
}
