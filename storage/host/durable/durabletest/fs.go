// Package durabletest is a filesystem that loses power. It keeps what programs see apart
// from what the disk holds, and knows every state a disk may be in after a cut:
//
//	names     renames, creations and unlinks since the last SyncDir: any number of them,
//	          in order, may have reached the disk
//	content   bytes since the last Sync: none, half or all of them may have
//
// EachCrash walks an operation through a cut at every step and every such state.
package durabletest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pillar-csi/pillar/storage/host/durable"
)

// ErrPowerCut is what every call answers once the power is gone.
var ErrPowerCut = errors.New("power cut")

// FS is an in-memory durable.FS. Every directory exists.
type FS struct {
	mu      sync.Mutex
	names   map[string]*inode // what programs see
	durable map[string]*inode // what the disk holds for certain
	journal []change          // name changes between the two
	temps   int

	steps int
	stop  int // the step that fails; 0: none
	cause error
	dead  bool
}

var _ durable.FS = (*FS)(nil)

type inode struct {
	data   []byte
	synced int // bytes the disk holds for certain
}

// change is one name change: path now leads to ino, or nowhere.
type change struct {
	path string
	ino  *inode
	also string // a rename's old name, unlinked in the same instant
}

// New answers an empty filesystem.
func New() *FS {
	return &FS{names: map[string]*inode{}, durable: map[string]*inode{}}
}

// FailAt makes step n from now, counted from 1, answer cause without an effect. With
// ErrPowerCut every later step fails too.
func (f *FS) FailAt(n int, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.steps, f.stop, f.cause = 0, n, cause
}

// Steps answers how many steps were made since New or FailAt.
func (f *FS) Steps() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.steps
}

// Put writes a file as if it had been there, durably, for ever.
func (f *FS) Put(path string, data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ino := &inode{data: append([]byte(nil), data...), synced: len(data)}
	f.names[path], f.durable[path] = ino, ino
}

// Files answers the names programs see below dir, without write leftovers.
func (f *FS) Files(dir string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for p := range f.names {
		if filepath.Dir(p) == filepath.Clean(dir) && !durable.IsTemp(filepath.Base(p)) {
			names = append(names, p)
		}
	}
	return names
}

// step counts one effect and answers the failure it must have.
func (f *FS) step() error {
	if f.dead {
		return ErrPowerCut
	}
	f.steps++
	if f.steps != f.stop {
		return nil
	}
	f.dead = errors.Is(f.cause, ErrPowerCut)
	return f.cause
}

// ReadFile implements durable.FS. Reading is not a step: it changes nothing.
func (f *FS) ReadFile(path string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return nil, ErrPowerCut
	}
	ino, ok := f.names[path]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return append([]byte(nil), ino.data...), nil
}

// CreateTemp implements durable.FS.
func (f *FS) CreateTemp(dir, pattern string, _ os.FileMode) (durable.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step(); err != nil {
		return nil, err
	}
	f.temps++
	path := filepath.Join(dir, strings.Replace(pattern, "*", fmt.Sprint(f.temps), 1))
	ino := &inode{}
	f.change(change{path: path, ino: ino})
	return &file{f, path, ino}, nil
}

// Rename implements durable.FS.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step(); err != nil {
		return err
	}
	ino, ok := f.names[from]
	if !ok {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	f.change(change{path: to, ino: ino, also: from})
	return nil
}

// Remove implements durable.FS.
func (f *FS) Remove(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step(); err != nil {
		return err
	}
	if _, ok := f.names[path]; !ok {
		return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
	}
	f.change(change{path: path})
	return nil
}

// SyncDir implements durable.FS.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step(); err != nil {
		return err
	}
	var rest []change
	for _, c := range f.journal {
		if filepath.Dir(c.path) == filepath.Clean(dir) {
			c.apply(f.durable)
		} else {
			rest = append(rest, c)
		}
	}
	f.journal = rest
	return nil
}

func (f *FS) change(c change) {
	c.apply(f.names)
	f.journal = append(f.journal, c)
}

func (c change) apply(names map[string]*inode) {
	delete(names, c.also)
	if c.ino == nil {
		delete(names, c.path)
		return
	}
	names[c.path] = c.ino
}

type file struct {
	fs   *FS
	path string
	ino  *inode
}

func (f *file) Name() string { return f.path }

func (f *file) Write(p []byte) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.step(); err != nil {
		return 0, err
	}
	f.ino.data = append(f.ino.data, p...)
	return len(p), nil
}

func (f *file) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.step(); err != nil {
		return err
	}
	f.ino.synced = len(f.ino.data)
	return nil
}

func (f *file) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.fs.step()
}
