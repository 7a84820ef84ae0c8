package powercuttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// createDM makes the device name of one target, and its node.
func createDM(name string, sectors int64, target, params string) error {
	dev, err := hosttest.DM(unix.DM_DEV_CREATE, name, 0, nil)
	if err != nil {
		return err
	}
	spec := unix.DmTargetSpec{Length: uint64(sectors)}
	copy(spec.Target_type[:len(spec.Target_type)-1], target)
	var table bytes.Buffer
	_ = binary.Write(&table, binary.NativeEndian, spec)
	table.WriteString(params + "\x00")
	if _, err = hosttest.DM(unix.DM_TABLE_LOAD, name, 1, table.Bytes()); err == nil {
		_, err = hosttest.DM(unix.DM_DEV_SUSPEND, name, 0, nil) // without its flag: resume
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
		_, err := hosttest.DM(unix.DM_DEV_REMOVE, name, 0, nil)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			return err
		}
	}
}
