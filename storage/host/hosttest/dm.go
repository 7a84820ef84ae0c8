package hosttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dmBuffer is the room for what an ioctl of the device-mapper takes and answers.
const dmBuffer = 4096

// DM runs one ioctl of the device-mapper (unix.DM_DEV_CREATE) on the device name, with so
// many targets in the data after its head, and answers the device's number. A program for
// each of hundreds takes most of a test's time (include/uapi/linux/dm-ioctl.h).
func DM(command uintptr, name string, targets uint32, data []byte) (dev uint64, err error) {
	control, err := os.OpenFile("/dev/mapper/control", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer control.Close()
	head := unix.DmIoctl{Version: [3]uint32{4, 0, 0}, Data_size: dmBuffer, Data_start: unix.SizeofDmIoctl, Target_count: targets}
	copy(head.Name[:len(head.Name)-1], name)
	b, err := binary.Append(make([]byte, 0, dmBuffer), binary.NativeEndian, head)
	if b = append(b, data...); err != nil || len(b) > dmBuffer {
		return 0, fmt.Errorf("device-mapper command %#x on %s: %d bytes, at most %d: %v", command, name, len(b), dmBuffer, err)
	}
	b = b[:dmBuffer]
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), command, uintptr(unsafe.Pointer(&b[0]))); errno != 0 {
		return 0, fmt.Errorf("device-mapper command %#x on %s: %w", command, name, errno)
	}
	_, err = binary.Decode(b, binary.NativeEndian, &head)
	return head.Dev, err
}

// DMMessage sends a message to the device's target at its start.
func DMMessage(name, text string) error {
	var message bytes.Buffer // struct dm_target_msg
	_ = binary.Write(&message, binary.NativeEndian, uint64(0))
	message.WriteString(text + "\x00")
	_, err := DM(unix.DM_TARGET_MSG, name, 0, message.Bytes())
	return err
}
