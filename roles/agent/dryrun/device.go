package dryrun

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/lvm"
)

// number is a device's.
type number struct{ major, minor uint32 }

// page is how much of a volume is kept together; pages nobody wrote to are not kept.
const page = 256 << 10

// content is what a volume holds, and who has its device.
type content struct {
	mu     sync.Mutex
	number number
	size   int64
	held   bool // exclusively
	pages  map[int64][]byte
}

func newContent(size int64) *content { return &content{size: size, pages: map[int64][]byte{}} }

// is gives it the number of its device.
func (c *content) is(n number) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.number = n
}

// numbers answers the number of its device.
func (c *content) numbers() (major, minor uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.number.major, c.number.minor
}

// drop ends every claim, as the end of a machine does.
func (c *content) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = false
}

func (c *content) inUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// written answers the bytes of the pages that are kept.
func (c *content) written() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return int64(len(c.pages)) * page
}

func (c *content) resize(size int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.size = size
}

// each hands do the part of p that lies in each page, and where in the page it begins.
func (c *content) each(p []byte, off int64, do func(part []byte, page, at int64)) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if off < 0 || off+int64(len(p)) > c.size {
		return 0, fmt.Errorf("byte %d of %d: %w", off+int64(len(p)), c.size, io.EOF)
	}
	for n := 0; n < len(p); {
		at := (off + int64(n)) % page
		part := p[n:min(len(p), n+int(page-at))]
		do(part, (off+int64(n))/page, at)
		n += len(part)
	}
	return len(p), nil
}

// descriptor is an open device.
type descriptor struct {
	*content
	m    *Machine
	path string
	excl bool
}

// ReadAt implements io.ReaderAt.
func (d *descriptor) ReadAt(p []byte, off int64) (int, error) {
	return d.each(p, off, func(part []byte, page, at int64) {
		clear(part)
		if have := d.pages[page]; have != nil {
			copy(part, have[at:])
		}
	})
}

// WriteAt implements io.WriterAt. Zeroes take no memory where there was nothing.
func (d *descriptor) WriteAt(p []byte, off int64) (int, error) {
	d.m.tell(Effect{Write: fmt.Sprintf("write %d bytes at byte %d of %s", len(p), off, d.path)})
	return d.each(p, off, func(part []byte, n, at int64) {
		if d.pages[n] == nil && len(bytes.Trim(part, "\x00")) == 0 {
			return
		}
		if d.pages[n] == nil {
			d.pages[n] = make([]byte, page)
		}
		copy(d.pages[n][at:], part)
	})
}

// Seek implements io.Seeker as far as a size is asked for.
func (d *descriptor) Seek(offset int64, whence int) (int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if whence == io.SeekEnd {
		return d.size + offset, nil
	}
	return 0, fmt.Errorf("seek %s: only to its end", d.path)
}

// Sync does nothing: the content ends with the process.
func (d *descriptor) Sync() error { return nil }

// Close ends an exclusive claim.
func (d *descriptor) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.excl {
		d.held = false
	}
	return nil
}

// Numbers implements lvm.Device.
func (d *descriptor) Numbers() (major, minor uint32, err error) {
	major, minor = d.numbers()
	return major, minor, nil
}

// Open opens the device at path, below the machine's root or not, with os.O_* flags.
func (m *Machine) Open(path string, flag int) (lvm.Device, error) {
	c, err := m.find(path)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	excl := flag&os.O_EXCL != 0
	if excl && c.held {
		return nil, fmt.Errorf("%w: open %s: %w", storage.ErrBusy, path, unix.EBUSY)
	}
	c.held = c.held || excl
	return &descriptor{content: c, m: m, path: m.within(path), excl: excl}, nil
}

// within is a path as the machine's own programs know it.
func (m *Machine) within(path string) string { return strings.TrimPrefix(path, string(m.root)) }

// find answers what a device node leads to.
func (m *Machine) find(path string) (*content, error) {
	path = m.within(path)
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.open[path]; c != nil {
		return c, nil
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: unix.ENOENT}
}

// Ready opens the device and lets go.
func (m *Machine) Ready(path string) error {
	d, err := m.Open(path, os.O_RDONLY)
	if err != nil {
		return err
	}
	return d.Close()
}

// Numbers answers what a node leads to.
func (m *Machine) Numbers(path string) (major, minor uint32, err error) {
	c, err := m.find(path)
	if err != nil {
		return 0, 0, err
	}
	major, minor = c.numbers()
	return major, minor, nil
}

// Number is Numbers in one.
func (m *Machine) Number(path string) (uint64, error) {
	major, minor, err := m.Numbers(path)
	return unix.Mkdev(major, minor), err
}

// Hold claims a device.
func (m *Machine) Hold(path string) (release func() error, err error) {
	d, err := m.Open(path, os.O_RDONLY|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	return d.Close, nil
}

// uuid answers an LVM UUID for what text names.
func uuid(text string) string {
	h := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
	return strings.Join([]string{h[:6], h[6:10], h[10:14], h[14:18], h[18:22], h[22:26], h[26:32]}, "-")
}

func vgUUID(vg string) string { return uuid("group " + vg) }

func (v *lv) uuid() string { return uuid(fmt.Sprint("volume ", v.Born)) }
