package attach

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/nvmet"
	"github.com/pillar-csi/pillar/transport/nvmf"
)

// Device is a block device as this call found it. Its name and numbers are the kernel's
// to give to another once nobody has it open: they are never recorded.
type Device struct {
	Path         string
	Major, Minor uint32
	Created      bool // this call connected it
}

// nvmeHost is what attaching needs of transport/nvmf.
type nvmeHost interface {
	Attach(ctx context.Context, t nvmf.Target) (nvmf.Device, error)
	Device(ctx context.Context, nqn string) (nvmf.Device, error)
	Detach(ctx context.Context, nqn string, portal transport.Portal) error
	Limit(ctx context.Context, nqn string, bytes int64) error
	Resize(ctx context.Context, nqn string, atLeast int64) (int64, error)
}

// Attacher reaches volumes over the network.
type Attacher struct {
	nvme  nvmeHost
	iscsi bool // iscsi_tcp was loaded when the process started
}

// New answers an attacher. iscsi says whether the module iscsi_tcp is loaded.
func New(nvme nvmeHost, iscsi bool) *Attacher {
	return &Attacher{nvme: nvme, iscsi: iscsi}
}

// Offers says whether this node can reach the source at all; nothing is touched.
func (a *Attacher) Offers(s Source) error {
	switch {
	case s.Protocol == transport.NVMeTCP:
		return nil
	case s.Protocol == transport.ISCSI && !a.iscsi:
		return csiserve.As(csiserve.FailedPrecondition,
			errors.New("iSCSI initiator is disabled: the kernel module iscsi_tcp was not loaded when the node plugin started"))
	}
	return fmt.Errorf("%w: %s is not offered by this node plugin yet", storage.ErrUnsupported, s.Protocol)
}

// Attach connects, unless it is connected, and answers the device. On failure it has
// undone what it did, or the device says that it is still Created.
func (a *Attacher) Attach(ctx context.Context, s Source) (Device, error) {
	n := s.NVMe
	dev, err := a.nvme.Attach(ctx, nvmf.Target{
		NQN:       n.SubsysNQN,
		Portal:    n.portal(),
		QueueSize: n.QueueSize, CtrlLossTmo: n.CtrlLossTmo, ReconnectDelay: n.ReconnectDelay,
		HdrDigest: n.HdrDigest, DataDigest: n.DataDigest,
	})
	return device(dev), internal(err)
}

// Limit applies the volume's transfer-size limit to its connection. It is cheap and
// repeated: the kernel forgets it whenever a path is made again.
func (a *Attacher) Limit(ctx context.Context, s Source) error {
	return internal(a.nvme.Limit(ctx, s.NVMe.SubsysNQN, s.NVMe.MaxTransfer))
}

// Resize answers the size in bytes of a connected source's device once it is at least
// atLeast. The connection may have lost its transfer-size limit by then: call Limit.
func (a *Attacher) Resize(ctx context.Context, s Source, atLeast int64) (int64, error) {
	size, err := a.nvme.Resize(ctx, s.NVMe.SubsysNQN, atLeast)
	return size, internal(err)
}

// Find answers the device of a connected source and whether there is one.
func (a *Attacher) Find(ctx context.Context, s Source) (Device, bool, error) {
	dev, err := a.nvme.Device(ctx, s.NVMe.SubsysNQN)
	if errors.Is(err, transport.ErrNotFound) {
		return Device{}, false, nil
	}
	return device(dev), err == nil, internal(err)
}

// Detach returns nil only when the kernel has no connection and no device of the source.
func (a *Attacher) Detach(ctx context.Context, s Source) error {
	return internal(a.nvme.Detach(ctx, s.NVMe.SubsysNQN, s.NVMe.portal()))
}

func device(d nvmf.Device) Device {
	return Device{Path: d.Path, Major: d.Major, Minor: d.Minor, Created: d.Created}
}

// internal keeps the kinds a stage answers by name; all else is Internal, a wait that
// ended as well (block.md B-305, D-20).
func internal(err error) error {
	if err == nil || errors.Is(err, transport.ErrPrecondition) || errors.Is(err, transport.ErrInvalid) {
		return err
	}
	return csiserve.As(csiserve.Internal, err)
}

// Derived answers the source a volume of this ID would have been staged from, as far as
// its name tells, to look for a connection nobody recorded. ok is false for an ID that
// this driver never issued or that has no connection to leave behind.
func Derived(volumeID string) (s Source, ok bool) {
	part := strings.SplitN(volumeID, "/", 4) // agent, protocol, backend, agent volume ID
	if len(part) != 4 || transport.Kind(part[1]) != transport.NVMeTCP {
		return Source{}, false
	}
	if _, err := storage.ParseVolumeID(part[3]); err != nil {
		return Source{}, false
	}
	nqn, err := nvmet.NQN(part[3])
	if err != nil {
		return Source{}, false
	}
	return Source{Protocol: transport.NVMeTCP, NVMe: &NVMe{SubsysNQN: nqn}}, true
}
