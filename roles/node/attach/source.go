// Package attach turns what the controller says about a volume into a block device on
// this node, and back: a network connection now, a local claim later.
//
//	volume context, publish context -> Parse -> Source (kept in the stage record)
//	Source -> Attach -> Device      connect, or find what is connected
//	Source -> Find   -> Device      without connecting
//	Source -> Detach                only when the kernel let go
package attach

import (
	"fmt"
	"net/netip"
	"strconv"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// Prefix starts every key of ours in a volume or publish context (api.md 1).
const Prefix = "pillar-csi.bhyoo.com/"

// defaultTransfer is the transfer-size limit of volumes whose context has none, in bytes
// (block.md B-330).
const defaultTransfer = 4 << 20

// Source is how a volume is reached. It holds all that is needed to connect again.
type Source struct {
	Protocol transport.Kind `json:"protocol_type"`
	NVMe     *NVMe          `json:"nvmeof,omitempty"`
}

// NVMe is a subsystem and how to connect to it. Nil options are left to the kernel.
type NVMe struct {
	SubsysNQN      string `json:"subsys_nqn"`
	Address        string `json:"address"`
	Port           uint16 `json:"port"`
	QueueSize      *int   `json:"queue_size,omitempty"`
	CtrlLossTmo    *int   `json:"ctrl_loss_tmo,omitempty"`     // seconds
	ReconnectDelay *int   `json:"reconnect_delay,omitempty"`   // seconds
	HdrDigest      bool   `json:"hdr_digest,omitempty"`        //
	DataDigest     bool   `json:"data_digest,omitempty"`       //
	MaxTransfer    int64  `json:"max_data_transfer,omitempty"` // bytes; 0: no limit
}

// portal is where the subsystem is; zero if that was never recorded.
func (n *NVMe) portal() transport.Portal { return transport.Portal{Address: n.Address, Port: n.Port} }

// Same reports whether both reach the same target at the same place. Options may differ:
// those of a connection stay as they are until the next connect (block.md B-333).
func (s Source) Same(o Source) bool {
	if s.Protocol != o.Protocol || (s.NVMe == nil) != (o.NVMe == nil) {
		return false
	}
	return s.NVMe == nil || s.NVMe.SubsysNQN == o.NVMe.SubsysNQN &&
		s.NVMe.Address == o.NVMe.Address && s.NVMe.Port == o.NVMe.Port
}

// Valid says why the source cannot be used, or nil.
func (s Source) Valid() error {
	if s.Protocol != transport.NVMeTCP || s.NVMe == nil {
		return fmt.Errorf("protocol %q without its connection", s.Protocol)
	}
	if _, err := transport.ParseNQN(s.NVMe.SubsysNQN); err != nil {
		return err
	}
	if _, err := netip.ParseAddr(s.NVMe.Address); err != nil || s.NVMe.Port == 0 {
		return fmt.Errorf("no portal: address %q port %d", s.NVMe.Address, s.NVMe.Port)
	}
	return nil
}

// Parse reads the volume and the publish context of a stage request (api.md 6 and 7).
// pageSize is the kernel's, in bytes. Faults are InvalidArgument; what this version does
// not offer is FailedPrecondition.
func Parse(volume, publish map[string]string, pageSize int64) (Source, error) {
	c := contexts{volume: volume, publish: publish}
	if mode, ok := publish[Prefix+"attach-mode"]; ok {
		if mode != "local" {
			return Source{}, csiserve.Invalid(Prefix+"attach-mode", fmt.Sprintf("%q is not local", mode))
		}
		return Source{}, csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("local attach is not offered yet"))
	}
	kind := transport.Kind(volume[Prefix+"protocol-type"])
	switch kind {
	case transport.NVMeTCP:
		return c.nvme(pageSize)
	case transport.ISCSI, transport.NFS:
		return Source{Protocol: kind}, nil // the attacher says whether this node can
	}
	return Source{}, csiserve.Invalid(Prefix+"protocol-type", fmt.Sprintf("unknown protocol %q", kind))
}

// contexts collects the first fault while values are read.
type contexts struct {
	volume, publish map[string]string
	err             error
}

func (c *contexts) nvme(pageSize int64) (Source, error) {
	n := &NVMe{
		SubsysNQN:      c.volume["target_id"],
		Address:        c.volume["address"],
		Port:           uint16(c.number("port", c.volume["port"], 1, 65535)),
		QueueSize:      c.option("nvmeof-max-queue-size", 1),
		CtrlLossTmo:    c.option("nvmeof-ctrl-loss-tmo", -1),
		ReconnectDelay: c.option("nvmeof-reconnect-delay", 0),
		HdrDigest:      c.digest("nvmeof-hdr-digest"),
		DataDigest:     c.digest("nvmeof-data-digest"),
		MaxTransfer:    c.transfer(pageSize),
	}
	if _, err := transport.ParseNQN(n.SubsysNQN); err != nil {
		c.fail("target_id", err.Error())
	}
	if _, err := netip.ParseAddr(n.Address); err != nil {
		c.fail("address", fmt.Sprintf("%q is not an IP address", n.Address))
	}
	return Source{Protocol: transport.NVMeTCP, NVMe: n}, c.err
}

func (c *contexts) fail(field, why string) {
	if c.err == nil {
		c.err = csiserve.Invalid(field, why)
	}
}

func (c *contexts) number(field, text string, low, high int64) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high {
		c.fail(field, fmt.Sprintf("%q is not a number from %d to %d", text, low, high))
		return 0
	}
	return n
}

func (c *contexts) option(key string, low int64) *int {
	text, ok := c.volume[Prefix+key]
	if !ok {
		return nil
	}
	n := int(c.number(Prefix+key, text, low, 1<<31-1))
	return &n
}

func (c *contexts) digest(key string) bool {
	text, ok := c.publish[Prefix+key]
	if ok && text != "true" && text != "false" {
		c.fail(Prefix+key, fmt.Sprintf("%q is neither true nor false", text))
	}
	return text == "true"
}

func (c *contexts) transfer(pageSize int64) int64 {
	const key = Prefix + "nvmeof-max-data-transfer-size"
	text, ok := c.volume[key]
	if !ok {
		return defaultTransfer
	}
	n := c.number(key, text, 0, 1<<40)
	if n != 0 && (n < pageSize || n%1024 != 0) {
		c.fail(key, fmt.Sprintf("%d bytes: must be whole KiB and not below the page size of %d bytes", n, pageSize))
	}
	return n
}
