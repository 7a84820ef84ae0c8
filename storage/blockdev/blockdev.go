// Package blockdev knows block devices by what the kernel says of them: size, numbers,
// device-mapper identity, who keeps them. It opens device nodes, reads sysfs and proc, and
// changes nothing.
//
//	/dev/...                          a node; its major:minor says which device it is today
//	/sys/dev/block/MAJOR:MINOR/
//	  diskseq                         no two devices have had the same since the boot
//	  dm/uuid                         device-mapper: who made the mapping and of what
//	  dm/name
//	  holders/                        devices stacked on top
//	/proc/PID/{mountinfo,fd/}         who has mounted or opened it
package blockdev

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// Open opens the block device at path with the os.O_* flags, and answers what the open
// descriptor leads to: a node that is replaced afterwards makes no difference. A busy
// exclusive open (os.O_EXCL) is storage.ErrBusy; a node that
// is missing is an fs.ErrNotExist; anything but a block device is an error.
func Open(path string, flag int) (*os.File, error) {
	f, err := host.Open(path, flag)
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("%w: %w", storage.ErrBusy, err)
	}
	if err != nil {
		return nil, err
	}
	if _, _, err := FileNumbers(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// FileNumbers answers the numbers of an open block device.
func FileNumbers(f *os.File) (major, minor uint32, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: f.Name(), Err: err}
	}
	return numbers(f.Name(), &st)
}

// Numbers answers the numbers of the block device a node leads to, without opening the
// device. A missing node is an fs.ErrNotExist.
func Numbers(path string) (major, minor uint32, err error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return numbers(path, &st)
}

func numbers(path string, st *unix.Stat_t) (major, minor uint32, err error) {
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return 0, 0, fmt.Errorf("%s is not a block device", path)
	}
	return unix.Major(st.Rdev), unix.Minor(st.Rdev), nil
}

// Size answers the device's size in bytes.
func Size(path string) (int64, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	return size, errors.Join(err, f.Close())
}

// Hold claims the device for this process by an exclusive open (open(2), O_EXCL on block
// devices), which keeps mounts, device-mapper and other claims out until release. A
// device that somebody else has claimed is storage.ErrBusy.
func Hold(path string) (release func() error, err error) {
	f, err := Open(path, os.O_RDONLY|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

// HoldSame is Hold, and proves that what it holds is the device that was meant. Another one
// that has come to the path is storage.ErrPrecondition.
func HoldSame(root host.Root, path string, want storage.DeviceID) (release func() error, err error) {
	f, err := Open(path, os.O_RDONLY|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	got, err := Identify(root, f)
	if err == nil && got != want {
		err = fmt.Errorf("%w: %s leads to another device, %v, than was looked at, %v", storage.ErrPrecondition, path, got, want)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// Identify answers which device is open.
func Identify(root host.Root, f *os.File) (storage.DeviceID, error) {
	major, minor, err := FileNumbers(f)
	if err != nil {
		return storage.DeviceID{}, err
	}
	return DeviceID(root, major, minor)
}

// DeviceID answers which device has the numbers. It is the one that the caller has open: they
// are used again only when nobody has. A kernel before 5.15 knows no sequence.
func DeviceID(root host.Root, major, minor uint32) (storage.DeviceID, error) {
	id := storage.DeviceID{Major: major, Minor: minor}
	file := sysfs(root, major, minor, "diskseq")
	text, err := host.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return id, nil
	}
	if err == nil {
		id.Sequence, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	}
	if err != nil {
		return storage.DeviceID{}, fmt.Errorf("%s: %w", file, err)
	}
	return id, nil
}

// DMUUID answers the device-mapper UUID of a device: "LVM-" and 64 letters for an LV. An
// fs.ErrNotExist: it is no device-mapper device, or there is no device of these numbers.
func DMUUID(root host.Root, major, minor uint32) (string, error) {
	data, err := host.ReadFile(sysfs(root, major, minor, "dm", "uuid"))
	return strings.TrimSpace(string(data)), err
}

func sysfs(root host.Root, major, minor uint32, elem ...string) string {
	device := strconv.FormatUint(uint64(major), 10) + ":" + strconv.FormatUint(uint64(minor), 10)
	return root.Path(append([]string{"sys", "dev", "block", device}, elem...)...)
}
