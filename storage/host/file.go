package host

import (
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Open is os.OpenFile for an existing file that is no pipe or socket: a block device, an
// attribute. Package os would ask its poller whether it can wait for it, which takes four
// more system calls than the open.
func Open(path string, flag int) (*os.File, error) {
	fd, err := open(path, flag)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// smallFile is enough for what is read most; a larger file takes more reads.
const smallFile = 512

// ReadFile is os.ReadFile for a small file, an attribute of the kernel's or a record. Each
// call of an agent reads some, a restore thousands: without the size, and without package
// os's poller, it takes half of the system calls. A pipe in the file's place does not hold it
// up (O_NONBLOCK): it reads as empty, or is an error.
func ReadFile(path string) ([]byte, error) {
	fd, err := open(path, os.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	data := make([]byte, 0, smallFile)
	for {
		n, err := retry(func() (int, error) { return unix.Read(fd, data[len(data):cap(data)]) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if n == 0 {
			return data, nil
		}
		if data = data[:len(data)+n]; len(data) == cap(data) {
			data = slices.Grow(data, smallFile)
		}
	}
}

func open(path string, flag int) (fd int, err error) {
	fd, err = retry(func() (int, error) { return unix.Open(path, flag|unix.O_CLOEXEC, 0) })
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// retry repeats a call that a signal cut off.
func retry(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}
