package zfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/crashpoint"
)

// deviceWait is how long Activate waits for a device: the kernel makes and renames devices
// just after zfs has answered. After an import of many it takes longer (H-38); whoever has
// the time asks again.
const (
	deviceWait = time.Second
	devicePoll = 50 * time.Millisecond
)

// appearWait is how long a destroy waits for a device that may be about to come.
const appearWait = 5 * time.Second

// openWait bounds one look at a device. The first open after an import reads from the pool;
// one of a suspended pool never comes back, and cannot be killed.
const openWait = 5 * time.Second

// errNoDevice is the kernel's word that it has no device of a zvol.
var errNoDevice = fmt.Errorf("no device: %w", fs.ErrNotExist)

var errNoAnswer = fmt.Errorf("no answer within %s", openWait)

// Identity is what a zvol's device says of itself.
type Identity struct {
	Dataset      string
	Size         int64 // bytes
	Major, Minor uint32
	Sequence     uint64 // of storage.DeviceID
}

func (id Identity) device() storage.DeviceID {
	return storage.DeviceID{Major: id.Major, Minor: id.Minor, Sequence: id.Sequence}
}

// nodes finds zvols' devices and keeps the links below /dev/zvol.
type nodes struct {
	root host.Root
	ask  func(path string) (Identity, error)

	mu   sync.Mutex
	hung map[string]bool // paths whose ask has not come back
}

func newNodes(root host.Root, ask func(path string) (Identity, error)) *nodes {
	if ask == nil {
		ask = askKernel
	}
	return &nodes{root: root, ask: ask, hung: map[string]bool{}}
}

// blkZName is BLKZNAME of sys/fs/zfs.h: _IOR(0x12, 125, char[256]).
const blkZName = 2<<30 | 256<<16 | 0x12<<8 | 125

// askKernel opens a device and asks which dataset it is (what zvol_id of udev does).
func askKernel(path string) (id Identity, err error) {
	f, err := blockdev.Open(path, os.O_RDONLY)
	if err != nil {
		return Identity{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	device, err := blockdev.Identify("", f)
	if err != nil {
		return Identity{}, err
	}
	id.Major, id.Minor, id.Sequence = device.Major, device.Minor, device.Sequence
	var name [256]byte
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), blkZName, uintptr(unsafe.Pointer(&name))); errno != 0 {
		return Identity{}, fmt.Errorf("%s is no zvol: %w", path, errno)
	}
	id.Dataset = unix.ByteSliceToString(name[:])
	id.Size, err = f.Seek(0, io.SeekEnd)
	return id, err
}

// who asks a device and gives up after openWait; its goroutine then stays until the pool is
// back, and the device is not asked again meanwhile.
func (n *nodes) who(ctx context.Context, path string) (Identity, error) {
	n.mu.Lock()
	hangs := n.hung[path]
	n.mu.Unlock()
	if hangs {
		return Identity{}, fmt.Errorf("open %s: an earlier one still hangs", path)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openWait, errNoAnswer)
	defer cancel()
	done := make(chan answer, 1)
	go func() {
		id, err := n.ask(path)
		n.mu.Lock()
		defer n.mu.Unlock()
		done <- answer{id, err}
		delete(n.hung, path)
	}()
	select {
	case a := <-done:
		return a.id, a.err
	case <-ctx.Done():
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case a := <-done: // just now
		return a.id, a.err
	default:
		n.hung[path] = true
		return Identity{}, fmt.Errorf("open %s: %w", path, context.Cause(ctx))
	}
}

type answer struct {
	id  Identity
	err error
}

// settle waits until the links of zvols lead to their devices, making them if need be, and
// answers what became of each by its dataset. A device that is missing after deviceWait is an
// fs.ErrNotExist, too. However many are missing, it is one wait and one look at a time.
func (n *nodes) settle(ctx context.Context, zvols ...report) map[string]storage.Activated {
	results := map[string]storage.Activated{}
	for end := time.Now().Add(deviceWait); ; {
		var missing []report
		for dataset, r := range n.linked(ctx, zvols...) {
			results[dataset] = r
		}
		for _, zvol := range zvols {
			if err := results[zvol.name].Err; err != nil && !errors.Is(err, fs.ErrPermission) {
				missing = append(missing, zvol)
			}
		}
		if zvols = missing; len(zvols) == 0 || ctx.Err() != nil {
			return results
		}
		if time.Now().After(end) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(devicePoll):
		}
	}
	for _, zvol := range zvols {
		err := results[zvol.name].Err
		if errors.Is(err, unix.ENXIO) { // being removed, or replaced
			err = fmt.Errorf("%w: %w", fs.ErrNotExist, err)
		}
		results[zvol.name] = storage.Activated{Err: fmt.Errorf("%w: no device of %s: %w", storage.ErrPrecondition, zvol.name, err)}
	}
	return results
}

// appear waits for a zvol's device, if it comes, before the zvol is destroyed: a zfs create
// that was killed, or an import, may still be adding it. To destroy a zvol meanwhile leaves
// its zdN in sysfs, and no later zvol of that number has a device (del_gendisk in
// block/genhd.c does nothing before device_add_disk has come to bdev_add).
func (n *nodes) appear(ctx context.Context, zvol report) {
	for end := time.Now().Add(appearWait); n.mode(zvol) != "none" && time.Now().Before(end) && ctx.Err() == nil; {
		if _, err := n.prove(ctx, n.link(zvol.name), zvol); err == nil {
			return
		}
		if n.scan(ctx, zvol)[zvol.name].err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(devicePoll):
		}
	}
}

// mode is the volmode a zvol has in effect: the module says what default is.
func (n *nodes) mode(zvol report) string {
	if zvol.mode != "default" {
		return zvol.mode
	}
	text, _ := os.ReadFile(n.root.Path("sys/module/zfs/parameters/zvol_volmode"))
	switch strings.TrimSpace(string(text)) {
	case "2":
		return "dev"
	case "3":
		return "none"
	}
	return "full"
}

// linked does it once, without waiting.
func (n *nodes) linked(ctx context.Context, zvols ...report) map[string]storage.Activated {
	results := map[string]storage.Activated{}
	var missing []report
	for _, zvol := range zvols {
		if id, err := n.prove(ctx, n.link(zvol.name), zvol); err == nil {
			results[zvol.name] = storage.Activated{Device: id.device()}
		} else {
			missing = append(missing, zvol)
		}
	}
	if len(missing) == 0 {
		return results
	}
	seen := n.scan(ctx, missing...)
	for _, zvol := range missing {
		link, at := n.link(zvol.name), seen[zvol.name]
		if at.err == nil {
			at.err = n.lead(link, at.node)
		}
		var id Identity
		if at.err == nil {
			id, at.err = n.prove(ctx, link, zvol)
		}
		results[zvol.name] = storage.Activated{Device: id.device(), Err: at.err}
	}
	return results
}

func (n *nodes) link(dataset string) string { return n.root.Path("dev/zvol", dataset) }

// prove holds a device to a zvol: the kernel calls it so, and it has the size and the mode. A
// device of the former mode is an fs.ErrNotExist: the kernel is about to replace it.
func (n *nodes) prove(ctx context.Context, path string, zvol report) (Identity, error) {
	id, err := n.who(ctx, path)
	switch {
	case err != nil:
	case id.Dataset != zvol.name:
		err = fmt.Errorf("%s is the device of %s, not of %s", path, id.Dataset, zvol.name)
	case id.Size != zvol.size:
		err = fmt.Errorf("%s has %d bytes, %s has %d", path, id.Size, zvol.name, zvol.size)
	case zvol.mode == "dev" || zvol.mode == "full": // "default" is the module's to say
		err = n.moded(path, id, zvol.mode)
	}
	if err != nil {
		return Identity{}, err
	}
	return id, nil
}

// moded tells a device that has partitions, of volmode full, from one that cannot have any.
func (n *nodes) moded(path string, id Identity, mode string) error {
	file := n.root.Path("sys/dev/block", fmt.Sprintf("%d:%d", id.Major, id.Minor), "ext_range")
	text, err := os.ReadFile(file) // how many minor numbers it and its partitions can have
	if err != nil {
		return err
	}
	if alone := strings.TrimSpace(string(text)) == "1"; alone != (mode == "dev") {
		return fmt.Errorf("%w: %s is not yet the device of volmode %s", fs.ErrNotExist, path, mode)
	}
	return nil
}

// seen is where scan saw a zvol's device, or why it did not.
type seen struct {
	node string
	err  error
}

// scan looks for the devices of zvols, each once, among those of their sizes: a look opens a
// device, which others' destroy finds busy. One is errNoDevice only if every device of its
// size said that it is another. While any pool is suspended nothing is opened: the first open
// of a zvol reads its pool under the lock that every zfs command takes (zvol_open in
// module/os/linux/zfs/zvol_os.c).
func (n *nodes) scan(ctx context.Context, zvols ...report) map[string]seen {
	bySize := map[int64]map[string]bool{}
	for _, zvol := range zvols {
		if bySize[zvol.size] == nil {
			bySize[zvol.size] = map[string]bool{}
		}
		bySize[zvol.size][zvol.name] = true
	}
	found, unknown := map[string]seen{}, map[int64]error{} // unknown by size, 0: any
	files, err := filepath.Glob(n.root.Path("sys/block/zd*/size"))
	if err = errors.Join(err, n.noneSuspended()); err != nil {
		files, unknown[0] = nil, err
	}
	for _, file := range files {
		size, err := sizeOf(file)
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV): // gone again
			continue
		case err != nil:
			unknown[0] = errors.Join(unknown[0], err)
			continue
		case len(bySize[size]) == 0:
			continue
		}
		node := n.root.Path("dev", filepath.Base(filepath.Dir(file)))
		switch id, err := n.who(ctx, node); {
		case err != nil:
			unknown[size] = errors.Join(unknown[size], err)
		case id.Size == size && bySize[size][id.Dataset]:
			found[id.Dataset] = seen{node: node}
			delete(bySize[size], id.Dataset)
		}
	}
	for size, names := range bySize {
		err := errors.Join(unknown[0], unknown[size])
		if err == nil {
			err = fmt.Errorf("%w: none of %d zvol devices is it", errNoDevice, len(files))
		}
		for name := range names {
			found[name] = seen{err: err}
		}
	}
	return found
}

// sizeOf reads the size file of a block device, 512-byte sectors, in bytes.
func sizeOf(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return sectors * 512, nil
}

// noneSuspended is storage.ErrPrecondition, with its name, while a pool has lost its disks.
func (n *nodes) noneSuspended() error {
	files, err := filepath.Glob(n.root.Path("proc/spl/kstat/zfs/*/state"))
	if err != nil {
		return err
	}
	for _, file := range files {
		state, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) { // exported meanwhile
			continue
		}
		if err != nil {
			return fmt.Errorf("state of a pool: %w", err)
		}
		if strings.TrimSpace(string(state)) == suspended {
			pool := filepath.Base(filepath.Dir(file))
			return fmt.Errorf("%w: pool %s is %s, and looking for a device could hang all others: see zpool status %s", storage.ErrPrecondition, pool, suspended, pool)
		}
	}
	return nil
}

// lead makes the link, or turns it to the node. Links go stale where no udev keeps them; the
// kernel's name of the node was compared, the old link's does not matter.
func (n *nodes) lead(link, node string) (err error) {
	if st, err := os.Lstat(link); err == nil && st.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s is no link: remove it", link)
	}
	what := "link " + link + " to " + node
	crashpoint.Before(crashpoint.Kernel, what)
	defer crashpoint.After(crashpoint.Kernel, what)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(link), node)
	if err != nil {
		return err
	}
	// A name no dataset has: two calls may make it at once, one after the other wins.
	temporary, err := os.MkdirTemp(filepath.Dir(link), ".pillar@")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temporary)) }()
	if err := os.Symlink(target, filepath.Join(temporary, "link")); err != nil {
		return err
	}
	return os.Rename(filepath.Join(temporary, "link"), link)
}

// forget removes the link of a dataset that is gone, if udev has not.
func (n *nodes) forget(dataset string) error {
	link := n.link(dataset)
	if st, err := os.Lstat(link); err != nil || st.Mode()&fs.ModeSymlink == 0 {
		return nil // none; or no work of ours, and proved before every use
	}
	what := "remove " + link
	crashpoint.Before(crashpoint.Kernel, what)
	defer crashpoint.After(crashpoint.Kernel, what)
	if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// held says who keeps a zvol (H-40), if its link leads to its device.
func (n *nodes) held(ctx context.Context, dataset string) string {
	id, err := n.who(ctx, n.link(dataset))
	if err != nil || id.Dataset != dataset {
		return "a mount, an export or a program has it open"
	}
	return blockdev.Held(n.root, id.Major, id.Minor)
}
