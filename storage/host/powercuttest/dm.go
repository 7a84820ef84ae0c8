package powercuttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The device-mapper's ioctls, spoken here because a program per step would take most of a
// test's time (include/uapi/linux/dm-ioctl.h).
const (
	dmCreate  = 3
	dmRemove  = 4
	dmResume  = 6 // DM_DEV_SUSPEND without its flag
	dmLoad    = 9
	dmMessage = 14

	dmIoctl  = 0xc138fd00 // _IOWR of a struct dm_ioctl
	dmBuffer = 4096
)

// dmHead is struct dm_ioctl.
type dmHead struct {
	Version   [3]uint32
	DataSize  uint32
	DataStart uint32
	Targets   uint32
	Open      int32
	Flags     uint32
	Event     uint32
	_         uint32
	Dev       uint64
	Name      [128]byte
	UUID      [129]byte
	_         [7]byte
}

// dmTarget is struct dm_target_spec; its parameters follow.
type dmTarget struct {
	Start, Sectors uint64
	Status         int32
	Next           uint32
	Type           [16]byte
}

// dm runs one ioctl on the device name, with data after its head, and answers its number.
func dm(command uintptr, name string, targets uint32, data []byte) (dev uint64, err error) {
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer control.Close()
	head := dmHead{Version: [3]uint32{4, 0, 0}, DataSize: dmBuffer, DataStart: uint32(binary.Size(dmHead{})), Targets: targets}
	copy(head.Name[:len(head.Name)-1], name)
	var buffer bytes.Buffer
	_ = binary.Write(&buffer, binary.NativeEndian, head) // a buffer takes all
	buffer.Write(data)
	b := append(buffer.Bytes(), make([]byte, dmBuffer)...)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), dmIoctl|command, uintptr(unsafe.Pointer(&b[0]))); errno != 0 {
		return 0, fmt.Errorf("device-mapper command %d on %s: %w", command, name, errno)
	}
	_, err = binary.Decode(b, binary.NativeEndian, &head)
	return head.Dev, err
}

// createDM makes the device name of one target, and its node.
func createDM(name string, sectors int64, target, params string) error {
	dev, err := dm(dmCreate, name, 0, nil)
	if err != nil {
		return err
	}
	spec := dmTarget{Sectors: uint64(sectors)}
	copy(spec.Type[:len(spec.Type)-1], target)
	var table bytes.Buffer
	_ = binary.Write(&table, binary.NativeEndian, spec)
	table.WriteString(params + "\x00")
	if _, err = dm(dmLoad, name, 1, table.Bytes()); err == nil {
		_, err = dm(dmResume, name, 0, nil)
	}
	if err == nil {
		err = makeNode(name, dev)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("%s %s: %w", target, params, err), removeDM(name))
	}
	return err
}

// nodePath is the device's own node. The links below /dev/mapper are udev's: it may take one
// away long after its device, when the next has it.
func nodePath(name string) string { return "/dev/" + name }

func makeNode(name string, dev uint64) error {
	_ = os.Remove(nodePath(name)) // of a test that was killed
	if err := unix.Mknod(nodePath(name), unix.S_IFBLK|0o600, int(dev)); err != nil {
		return fmt.Errorf("make node %s: %w", nodePath(name), err)
	}
	return nil
}

// busyWait is how long udev may look at a new device.
const busyWait = 5 * time.Second

// removeDM takes the device away, once nobody has it open.
func removeDM(name string) error {
	_ = os.Remove(nodePath(name))
	for end := time.Now().Add(busyWait); ; time.Sleep(2 * time.Millisecond) {
		_, err := dm(dmRemove, name, 0, nil)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}

// messageDM sends the device's target a message.
func messageDM(name, text string) error {
	data := append(make([]byte, 8), text+"\x00"...) // to the target at sector 0
	_, err := dm(dmMessage, name, 0, data)
	return err
}
