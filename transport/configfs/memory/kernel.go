// Package memory is a configfs in memory that enforces the kernel's rules for nvmet: the
// target of an agent that only simulates, and of tests without a kernel. configfstest.Rules
// holds every rule to the real configfs as well; a rule without a case there does not
// belong here.
//
//	nvmet/
//	├── hosts/<nqn>/
//	├── subsystems/<nqn>/{attr_..., allowed_hosts/<nqn>, namespaces/<n>/{device_path, enable, ...}}
//	└── ports/<n>/{addr_..., param_..., subsystems/<nqn>}
package memory

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/pillar-csi/pillar/transport/configfs"
)

// Kernel is a configfs with nvmet loaded. It implements configfs.FS.
type Kernel struct {
	effect func(line string)

	mu    sync.Mutex
	nodes map[string]*node
}

// node is a directory, an attribute file or a symbolic link.
type node struct {
	dir    bool
	object bool   // made by mkdir, so rmdir may remove it
	target string // of a link
	value  string // of an attribute, as shown without its newline
	links  int    // how many links point here
}

// New answers a configfs with the empty trees of nvmet. effect is called before every
// effect with a line that says what: "mkdir NAME", "set NAME VALUE", "link NAME".
func New(effect func(line string)) *Kernel {
	k := &Kernel{effect: effect, nodes: map[string]*node{}}
	for _, dir := range []string{".", "nvmet", "nvmet/hosts", "nvmet/subsystems", "nvmet/ports"} {
		k.nodes[dir] = &node{dir: true}
	}
	return k
}

// Dir answers its root.
func (k *Kernel) Dir() configfs.Dir { return configfs.On(k) }

// Plant gives a directory an attribute of that value, past every rule: one that was changed
// behind the target's back, or that other kernels have.
func (k *Kernel) Plant(name, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.nodes[name] = &node{value: value}
}

func fail(op, name string, errno syscall.Errno) error {
	return &fs.PathError{Op: op, Path: name, Err: errno}
}

// Mkdir implements configfs.FS.
func (k *Kernel) Mkdir(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	parent := k.nodes[path.Dir(name)]
	switch {
	case parent == nil:
		return fail("mkdir", name, syscall.ENOENT)
	case k.nodes[name] != nil:
		return fail("mkdir", name, syscall.EEXIST)
	}
	attrs, dirs, errno := born(name)
	if errno != 0 {
		return fail("mkdir", name, errno)
	}
	k.effect("mkdir " + name)
	k.nodes[name] = &node{dir: true, object: true}
	for attr, value := range attrs {
		k.nodes[path.Join(name, attr)] = &node{value: value}
	}
	for _, d := range dirs {
		k.nodes[path.Join(name, d)] = &node{dir: true}
	}
	return nil
}

// Rmdir implements configfs.FS.
func (k *Kernel) Rmdir(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[name]
	switch {
	case n == nil:
		return fail("rmdir", name, syscall.ENOENT)
	case !n.dir:
		return fail("rmdir", name, syscall.ENOTDIR)
	case !n.object:
		return fail("rmdir", name, syscall.EPERM)
	case n.links > 0:
		return fail("rmdir", name, syscall.EBUSY)
	}
	for child, c := range k.below(name) {
		if c.object || c.target != "" {
			return fail("rmdir "+child, name, syscall.ENOTEMPTY)
		}
	}
	k.effect("rmdir " + name)
	for child := range k.below(name) {
		delete(k.nodes, child)
	}
	delete(k.nodes, name)
	return nil
}

// below answers a copy of everything under name.
func (k *Kernel) below(name string) map[string]*node {
	sub := map[string]*node{}
	for n, v := range k.nodes {
		if strings.HasPrefix(n, name+"/") {
			sub[n] = v
		}
	}
	return sub
}

// Symlink implements configfs.FS.
func (k *Kernel) Symlink(target, name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.nodes[target]
	switch {
	case t == nil || k.nodes[path.Dir(name)] == nil:
		return fail("symlink", name, syscall.ENOENT)
	case k.nodes[name] != nil:
		return fail("symlink", name, syscall.EEXIST)
	}
	if errno := k.allowLink(target, name); errno != 0 {
		return fail("symlink", name, errno)
	}
	k.effect("link " + name)
	t.links++
	k.nodes[name] = &node{target: target}
	return nil
}

// Unlink implements configfs.FS.
func (k *Kernel) Unlink(name string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[name]
	switch {
	case n == nil:
		return fail("unlink", name, syscall.ENOENT)
	case n.dir:
		return fail("unlink", name, syscall.EISDIR)
	case n.target == "":
		return fail("unlink", name, syscall.EPERM)
	}
	k.effect("unlink " + name)
	k.nodes[n.target].links--
	delete(k.nodes, name)
	return nil
}

// ReadFile implements configfs.FS.
func (k *Kernel) ReadFile(name string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[name]
	switch {
	case n == nil:
		return nil, fail("open", name, syscall.ENOENT)
	case n.dir, n.target != "":
		return nil, fail("read", name, syscall.EISDIR)
	case path.Base(name) == "revalidate_size":
		return nil, fail("open", name, syscall.EACCES)
	}
	return []byte(n.value + "\n"), nil
}

// WriteFile implements configfs.FS.
func (k *Kernel) WriteFile(name string, data []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[name]
	switch {
	case n == nil:
		return fail("open", name, syscall.ENOENT)
	case n.dir:
		return fail("open", name, syscall.EISDIR)
	}
	value := strings.TrimSuffix(string(data), "\n")
	shown, errno := k.store(name, value)
	if errno != 0 {
		return fail("write", name, errno)
	}
	k.effect(fmt.Sprintf("set %s %s", name, value))
	n.value = shown
	return nil
}

// ReadDir implements configfs.FS.
func (k *Kernel) ReadDir(name string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch n := k.nodes[name]; {
	case n == nil:
		return nil, fail("open", name, syscall.ENOENT)
	case !n.dir:
		return nil, fail("open", name, syscall.ENOTDIR)
	}
	var names []string
	for n := range maps.Keys(k.nodes) {
		if n != "." && path.Dir(n) == name {
			names = append(names, path.Base(n))
		}
	}
	slices.Sort(names)
	return names, nil
}

// IsDir implements configfs.FS.
func (k *Kernel) IsDir(name string) (bool, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.nodes[name]
	if n == nil {
		return false, fail("lstat", name, syscall.ENOENT)
	}
	return n.dir, nil
}
