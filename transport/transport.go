// Package transport holds what every protocol agrees on: kinds, portals, exports, and the
// kinds of failure a caller acts on.
package transport

import (
	"errors"
	"net"
	"strconv"
)

// The kinds of failure a caller acts on. Anything else is an internal error.
var (
	ErrInvalid      = errors.New("invalid")             // a name or value no target could accept
	ErrNotFound     = errors.New("not found")           // the kernel says there is no such export
	ErrBusy         = errors.New("busy")                // device or object in use
	ErrPrecondition = errors.New("precondition failed") // another device, another value on a live port
	ErrUnsupported  = errors.New("unsupported")         // this kernel does not offer it
)

// Kind is the protocol token of the API.
type Kind string

// The protocol tokens (api.md 1).
const (
	NVMeTCP Kind = "nvmeof-tcp"
	ISCSI   Kind = "iscsi"
	NFS     Kind = "nfs"
)

// DefaultPort is the TCP port of a portal that names none (block.md B-235).
func (k Kind) DefaultPort() uint16 {
	switch k {
	case NVMeTCP:
		return 4420
	case ISCSI:
		return 3260
	default:
		return 0
	}
}

// Portal is where a target listens.
type Portal struct {
	Address string // IPv4 or IPv6, no port, no brackets
	Port    uint16
}

func (p Portal) String() string {
	return net.JoinHostPort(p.Address, strconv.Itoa(int(p.Port)))
}

// Export asks for a volume to be reachable (block.md B-235). Names of targets are derived
// from Volume by the target, never sent.
type Export struct {
	Kind       Kind
	Volume     string // agent volume ID
	DevicePath string // recomputed by the agent from its layout
	Portal     Portal // port 0: the protocol's default
	ACL        bool
	Initiators []string // host NQNs or initiator IQNs; exact set when ACL is on
	Disabled   bool     // local attach: configured, not serving

	InCapsuleDataSize   *int32 // bytes; nil accepts the port's value
	MaxDataTransferSize *int32 // bytes; 0 and nil: no limit asked
}

// Target is an export as the kernel has it.
type Target struct {
	ID     string // NQN or IQN
	Portal Portal // as actually used
	Ref    string // NVMe: the subsystem NQN; iSCSI: LUN "0"

	Enabled    bool
	ACL        bool
	Initiators []string
}
