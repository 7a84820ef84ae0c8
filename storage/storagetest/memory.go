package storagetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"sync"

	"github.com/pillar-csi/pillar/storage"
)

// Unit is what a Memory rounds sizes up to, in bytes.
const Unit = 4 << 20

// Memory is a backend for tests above it: volumes with content, in memory. Its devices are
// /dev/<pool>/<name> and exist only for Open.
type Memory struct {
	mu      sync.Mutex
	pool    string
	total   int64
	volumes map[string]*memoryVolume
	fail    error
}

var _ storage.Backend = (*Memory)(nil)

// NewMemory answers an empty pool of total bytes.
func NewMemory(pool string, total int64) *Memory {
	return &Memory{pool: pool, total: total / Unit * Unit, volumes: map[string]*memoryVolume{}}
}

type memoryVolume struct {
	mu     sync.Mutex
	owner  storage.Owner
	size   int64
	active bool
	holds  int
	pages  map[int64][]byte // of Unit bytes, absent: zero
}

var memoryName = regexp.MustCompile(`^[A-Za-z0-9+_.][A-Za-z0-9+_.-]{0,126}$`)

// Fail makes every call answer err, like a tool that says what nobody knows. nil ends it.
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}

// Stranger makes a volume that is nobody's, as an administrator does by hand.
func (m *Memory) Stranger(name string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.volumes[name] = &memoryVolume{size: bytes, active: true, pages: map[int64][]byte{}}
}

// Reboot takes every device away until it is activated.
func (m *Memory) Reboot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, v := range m.volumes {
		v.active, v.holds = false, 0
	}
}

// Hold keeps a device in use until release.
func (m *Memory) Hold(path string) (release func() error, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, err := m.device(path)
	if err != nil {
		return nil, err
	}
	v.holds++
	return func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		v.holds--
		return nil
	}, nil
}

// Open opens a device.
func (m *Memory) Open(path string) (Device, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.device(path)
}

func (m *Memory) device(path string) (*memoryVolume, error) {
	for name, v := range m.volumes {
		if v.active && m.path(name) == path {
			return v, nil
		}
	}
	return nil, fmt.Errorf("no device %s", path)
}

func (m *Memory) path(name string) string { return "/dev/" + m.pool + "/" + name }

// enter takes the lock and answers why a call cannot go on.
func (m *Memory) enter(ctx context.Context, name string) (leave func(), err error) {
	m.mu.Lock()
	if name == "." || name == ".." || !memoryName.MatchString(name) {
		err = fmt.Errorf("%w: volume name %q", storage.ErrInvalid, name)
	}
	if err = errors.Join(err, ctx.Err(), m.fail); err != nil {
		m.mu.Unlock()
		return nil, err
	}
	return m.mu.Unlock, nil
}

// Create implements storage.Backend.
func (m *Memory) Create(ctx context.Context, s storage.Spec) (storage.Volume, error) {
	leave, err := m.enter(ctx, s.ID.Name)
	if err != nil {
		return storage.Volume{}, err
	}
	defer leave()
	if s.ID.Pool != m.pool || s.Bytes <= 0 || s.Owner.Check() != nil {
		return storage.Volume{}, fmt.Errorf("%w: %d bytes of %s", storage.ErrInvalid, s.Bytes, s.ID)
	}
	size, err := roundUp(s.Bytes)
	if err != nil {
		return storage.Volume{}, fmt.Errorf("create %s: %w", s.ID, err)
	}
	v, ok := m.volumes[s.ID.Name]
	if ok && !s.Owner.Owns(v.owner) {
		return storage.Volume{}, fmt.Errorf("create %s: %w", s.ID, storage.ErrForeign)
	}
	if ok && v.size != size {
		return storage.Volume{}, fmt.Errorf("create %s: %w with %d bytes, not %d", s.ID, storage.ErrConflict, v.size, size)
	}
	if !ok {
		if size > m.available() {
			return storage.Volume{}, fmt.Errorf("create %s: %w", s.ID, storage.ErrNoSpace)
		}
		v = &memoryVolume{owner: s.Owner, size: size, pages: map[int64][]byte{}}
		m.volumes[s.ID.Name] = v
	}
	v.active = true
	return m.volume(s.ID.Name, v), nil
}

func roundUp(bytes int64) (int64, error) {
	if bytes > math.MaxInt64-Unit {
		return 0, storage.ErrNoSpace
	}
	return (bytes + Unit - 1) / Unit * Unit, nil
}

func (m *Memory) volume(name string, v *memoryVolume) storage.Volume {
	return storage.Volume{ID: storage.VolumeID{Pool: m.pool, Name: name}, Owner: v.owner, Bytes: v.size, DevicePath: m.path(name)}
}

func (m *Memory) available() int64 {
	left := m.total
	for _, v := range m.volumes {
		left -= v.size
	}
	return left
}

// Inspect implements storage.Backend.
func (m *Memory) Inspect(ctx context.Context, name string) (storage.Volume, error) {
	leave, err := m.enter(ctx, name)
	if err != nil {
		return storage.Volume{}, err
	}
	defer leave()
	v, ok := m.volumes[name]
	if !ok {
		return storage.Volume{}, fmt.Errorf("volume %s/%s: %w", m.pool, name, storage.ErrNotFound)
	}
	return m.volume(name, v), nil
}

// Activate implements storage.Backend.
func (m *Memory) Activate(ctx context.Context, name string, owner storage.Owner) (storage.Volume, error) {
	leave, err := m.enter(ctx, name)
	if err != nil {
		return storage.Volume{}, err
	}
	defer leave()
	v, err := m.own(name, owner)
	if err != nil {
		return storage.Volume{}, fmt.Errorf("activate %s/%s: %w", m.pool, name, err)
	}
	v.active = true
	return m.volume(name, v), nil
}

// own finds an owner's volume.
func (m *Memory) own(name string, owner storage.Owner) (*memoryVolume, error) {
	v, ok := m.volumes[name]
	switch {
	case !ok:
		return nil, storage.ErrNotFound
	case !owner.Owns(v.owner):
		return nil, storage.ErrForeign
	}
	return v, nil
}

// ActivateAll implements storage.Backend.
func (m *Memory) ActivateAll(ctx context.Context, owners map[string]storage.Owner) map[string]storage.Activated {
	results := map[string]storage.Activated{}
	for name, owner := range owners {
		_, err := m.Activate(ctx, name, owner)
		results[name] = storage.Activated{Err: err}
	}
	return results
}

// Expand implements storage.Backend.
func (m *Memory) Expand(ctx context.Context, name string, owner storage.Owner, bytes int64) (storage.Volume, error) {
	leave, err := m.enter(ctx, name)
	if err != nil {
		return storage.Volume{}, err
	}
	defer leave()
	v, err := m.own(name, owner)
	size, full := roundUp(bytes)
	switch {
	case bytes <= 0:
		err = fmt.Errorf("%w: %d bytes", storage.ErrInvalid, bytes)
	case err != nil:
	case full != nil:
		err = full
	case size < v.size:
		err = fmt.Errorf("%w: cannot shrink from %d to %d bytes", storage.ErrOutOfRange, v.size, size)
	case size-v.size > m.available():
		err = storage.ErrNoSpace
	}
	if err != nil {
		return storage.Volume{}, fmt.Errorf("expand %s/%s: %w", m.pool, name, err)
	}
	v.resize(size)
	return m.volume(name, v), nil
}

// Delete implements storage.Backend.
func (m *Memory) Delete(ctx context.Context, name string, owner storage.Owner) error {
	leave, err := m.enter(ctx, name)
	if err != nil {
		return err
	}
	defer leave()
	v, err := m.own(name, owner)
	if err == nil && v.holds > 0 {
		err = storage.ErrBusy
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("delete %s/%s: %w", m.pool, name, err)
	}
	delete(m.volumes, name)
	return nil
}

// List implements storage.Backend.
func (m *Memory) List(ctx context.Context) ([]storage.Volume, error) {
	leave, err := m.enter(ctx, "any")
	if err != nil {
		return nil, err
	}
	defer leave()
	var list []storage.Volume
	for name, v := range m.volumes {
		list = append(list, m.volume(name, v))
	}
	return list, nil
}

// Pool implements storage.Backend.
func (m *Memory) Pool(ctx context.Context) (storage.Pool, error) {
	leave, err := m.enter(ctx, "any")
	if err != nil {
		return storage.Pool{}, err
	}
	defer leave()
	return storage.Pool{Name: m.pool, Type: "lvm", Capacity: storage.Capacity{Total: m.total, Available: m.available()}}, nil
}

// ReadAt implements Device.
func (v *memoryVolume) ReadAt(p []byte, off int64) (int, error) {
	return v.each(p, off, func(part []byte, page, at int64) {
		clear(part)
		if content := v.pages[page]; content != nil {
			copy(part, content[at:])
		}
	})
}

// WriteAt implements Device.
func (v *memoryVolume) WriteAt(p []byte, off int64) (int, error) {
	return v.each(p, off, func(part []byte, page, at int64) {
		if v.pages[page] == nil {
			v.pages[page] = make([]byte, Unit)
		}
		copy(v.pages[page][at:], part)
	})
}

func (v *memoryVolume) resize(size int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.size = size
}

// Sync implements Device.
func (v *memoryVolume) Sync() error { return nil }

// Close implements Device.
func (v *memoryVolume) Close() error { return nil }

// each cuts p at page borders.
func (v *memoryVolume) each(p []byte, off int64, do func(part []byte, page, at int64)) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if off < 0 || off+int64(len(p)) > v.size {
		return 0, fmt.Errorf("byte %d of %d: %w", off+int64(len(p)), v.size, io.EOF)
	}
	for n := 0; n < len(p); {
		at := (off + int64(n)) % Unit
		part := p[n:min(len(p), n+int(Unit-at))]
		do(part, (off+int64(n))/Unit, at)
		n += len(part)
	}
	return len(p), nil
}
