package nvmf

import (
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"unsafe"

	"github.com/pillar-csi/pillar/storage/host/crashpoint"
	"github.com/pillar-csi/pillar/transport"
	"golang.org/x/sys/unix"
)

// CheckLimit says whether a transfer limit in bytes can be set: 0 (none), or whole KiB of
// at least a page. Anything else is transport.ErrInvalid; nothing is rounded.
func CheckLimit(bytes int64) error {
	page := int64(os.Getpagesize())
	if bytes != 0 && (bytes < page || bytes%1024 != 0) {
		return fmt.Errorf("%w: transfer limit of %d bytes: not whole KiB of at least the page size %d", transport.ErrInvalid, bytes, page)
	}
	return nil
}

// Limit keeps transfers to a connected subsystem at or below the given size in bytes, for
// a target that does not advertise a limit itself (block.md B-330). 0 sets none. The
// kernel forgets it when a path is made again or the namespace is rescanned.
func (h *Host) Limit(ctx context.Context, nqn string, bytes int64) error {
	if err := CheckLimit(bytes); err != nil || bytes == 0 {
		return err
	}
	if err := h.limit(ctx, nqn, bytes/1024); err != nil {
		return fmt.Errorf("limit transfers of %s: %w", nqn, err)
	}
	return nil
}

func (h *Host) limit(ctx context.Context, nqn string, kib int64) error {
	ns, err := findNamespace(h.sys, nqn, h.cfg.HostNQN)
	if err != nil {
		return err
	}
	own, err := h.own(nqn)
	if err != nil {
		return err
	}
	if ns == nil || len(own) == 0 {
		return fmt.Errorf("%w: not connected", transport.ErrNotFound)
	}
	disks := []string{ns.dir}
	for _, c := range own {
		advertised, err := h.advertises(ctx, c)
		if err != nil || advertised {
			return err
		}
		dir := path.Join("class/nvme", c.name)
		paths, err := listMatching(h.sys, dir, pathName)
		if err != nil {
			return err
		}
		for _, p := range paths {
			disks = append(disks, path.Join(dir, p))
		}
	}
	for _, d := range disks {
		if err := h.limitDisk(ctx, path.Join(d, "queue/max_sectors_kb"), kib); err != nil {
			return err
		}
	}
	return nil
}

func (h *Host) limitDisk(ctx context.Context, attr string, kib int64) error {
	have, err := h.readInt(attr)
	if err != nil || have <= kib {
		return err
	}
	if err := h.write(ctx, attr, strconv.FormatInt(kib, 10)); err != nil {
		return err
	}
	if have, err = h.readInt(attr); err == nil && have != kib {
		err = fmt.Errorf("%s reads %d after writing %d", attr, have, kib)
	}
	return err
}

func (h *Host) readInt(attr string) (int64, error) {
	text, err := read(h.sys, path.Dir(attr), path.Base(attr))
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, wrap(attr, err)
}

// advertises asks the controller whether its target limits transfers: MDTS of Identify
// Controller, NVMe Base Specification figure 312, is not 0.
func (h *Host) advertises(ctx context.Context, c controller) (bool, error) {
	dev, err := read(h.sys, path.Join("class/nvme", c.name), "dev")
	if err != nil {
		return false, err
	}
	major, minor, err := parseDev(dev)
	if err != nil {
		return false, err
	}
	node := h.root.Path("dev", c.name)
	if err := h.node(node, unix.S_IFCHR, major, minor); err != nil {
		return false, err
	}
	var data []byte
	err = await(ctx, func() (err error) {
		data, err = identify(node)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("identify %s: %w", node, err)
	}
	return data[77] != 0, nil
}

// adminCmd is struct nvme_passthru_cmd of linux/nvme_ioctl.h.
type adminCmd struct {
	opcode, flags         uint8
	_                     uint16
	nsid, cdw2, cdw3      uint32
	metadata, addr        uint64
	metadataLen, dataLen  uint32
	cdw10, cdw11, cdw12   uint32
	cdw13, cdw14, cdw15   uint32
	timeoutMs, resultCode uint32
}

const (
	ioctlAdminCmd   = 0xc0484e41 // NVME_IOCTL_ADMIN_CMD: _IOWR('N', 0x41, 72 bytes)
	opIdentify      = 0x06
	cnsController   = 1
	identifyTimeout = 5000 // ms: an admin command to a target that does not answer
)

// identify sends Identify Controller and answers its 4096 bytes.
func identify(node string) ([]byte, error) {
	fd, err := unix.Open(node, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	data := make([]byte, 4096)
	cmd := &adminCmd{
		opcode: opIdentify, cdw10: cnsController, timeoutMs: identifyTimeout,
		addr: uint64(uintptr(unsafe.Pointer(&data[0]))), dataLen: uint32(len(data)),
	}
	crashpoint.Before(crashpoint.Kernel, "identify "+node)
	status, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), ioctlAdminCmd, uintptr(unsafe.Pointer(cmd)))
	crashpoint.After(crashpoint.Kernel, "identify "+node)
	if errno != 0 {
		return nil, errno
	}
	if status != 0 {
		return nil, fmt.Errorf("NVMe status %#x", status)
	}
	return data, nil
}
