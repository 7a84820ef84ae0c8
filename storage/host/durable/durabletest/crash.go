package durabletest

import (
	"fmt"
	"testing"
)

// Images answers every state the disk may be in if power is lost now, each as a
// filesystem that has just been mounted again.
func (f *FS) Images() []*FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	var images []*FS
	for names := 0; names <= len(f.journal); names++ {
		for halves := range 3 {
			images = append(images, f.image(names, halves))
		}
	}
	return images
}

// image is the disk with the first so many name changes, and none, half or all of the
// bytes that were never synced.
func (f *FS) image(names, halves int) *FS {
	tree := map[string]*inode{}
	for p, ino := range f.durable {
		tree[p] = ino
	}
	for _, c := range f.journal[:names] {
		c.apply(tree)
	}
	image := New()
	image.temps = f.temps
	for p, ino := range tree {
		keep := ino.synced + (len(ino.data)-ino.synced)*halves/2
		data := append([]byte(nil), ino.data[:keep]...)
		kept := &inode{data: data, synced: keep}
		image.names[p], image.durable[p] = kept, kept
	}
	return image
}

// EachCrash runs op on a fresh filesystem once for every step it makes, cuts the power at
// that step, and hands every state the disk may then be in to check, with what op
// answered. The last round lets op finish and cuts the power after it.
func EachCrash(t *testing.T, setup func(*FS), op func(*FS) error, check func(t *testing.T, disk *FS, err error)) {
	t.Helper()
	for n := 1; ; n++ {
		f := New()
		setup(f)
		f.FailAt(n, ErrPowerCut)
		err := op(f)
		for i, image := range f.Images() {
			t.Run(fmt.Sprintf("cut at step %d, image %d", n, i), func(t *testing.T) { check(t, image, err) })
		}
		if f.Steps() < n {
			return
		}
	}
}

// EachError is EachCrash for a step that answers cause once while the machine lives on.
// It hands check the same filesystem, still running.
func EachError(t *testing.T, cause error, setup func(*FS), op func(*FS) error, check func(t *testing.T, fs *FS, err error)) {
	t.Helper()
	for n := 1; ; n++ {
		f := New()
		setup(f)
		f.FailAt(n, cause)
		err := op(f)
		if f.Steps() < n {
			return
		}
		t.Run(fmt.Sprintf("error at step %d", n), func(t *testing.T) { check(t, f, err) })
	}
}
