package controller

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// accessMode is who may use a volume at a time, as CSI names it.
type accessMode = csi.VolumeCapability_AccessMode_Mode

// allKinds are the protocols a volume may be reached over.
var allKinds = []transport.Kind{transport.NVMeTCP, transport.ISCSI, transport.NFS}

// supports tells whether volumes reached over kind can be used as a raw block device or a
// filesystem in that mode (api.md 9.2).
func supports(kind transport.Kind, block bool, mode accessMode) bool {
	file := kind == transport.NFS
	if block && file || !slices.Contains(allKinds, kind) {
		return false
	}
	switch mode {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		return true
	case csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return file
	}
	return false
}

// checkCapability says why none of the protocols supports a capability, or nil.
func checkCapability(c *csi.VolumeCapability, of ...transport.Kind) error {
	if c.GetMount() == nil && c.GetBlock() == nil {
		return errors.New("access type is missing; set mount or block")
	}
	mode, block := c.GetAccessMode().GetMode(), c.GetBlock() != nil
	if slices.ContainsFunc(of, func(kind transport.Kind) bool { return supports(kind, block, mode) }) {
		return nil
	}
	over := "any protocol"
	if len(of) == 1 {
		over = string(of[0])
	}
	if block && supports(of[0], false, mode) {
		return fmt.Errorf("raw block volumes are not supported over %s; use volumeMode Filesystem", over)
	}
	return fmt.Errorf("access mode %s is not supported over %s; use a SINGLE_NODE mode or MULTI_NODE_READER_ONLY", mode, over)
}

// checkCapabilities refuses an empty list and any entry no protocol supports.
func checkCapabilities(field string, caps []*csi.VolumeCapability) error {
	if len(caps) == 0 {
		return csiserve.Invalid(field, "is empty; at least one capability is required")
	}
	for i, c := range caps {
		if err := checkCapability(c, allKinds...); err != nil {
			return csiserve.Invalid(fmt.Sprintf("%s[%d]", field, i), err.Error())
		}
	}
	return nil
}

// fit says why a volume reached over kind cannot be used with all the capabilities, or
// nil. Read-only is a property of a whole NFS export, so there it cannot be mixed with
// writing (files.md F-51).
func fit(kind transport.Kind, caps ...*csi.VolumeCapability) error {
	var readers, writers bool
	for _, c := range caps {
		if err := checkCapability(c, kind); err != nil {
			return err
		}
		switch c.GetAccessMode().GetMode() {
		case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
			readers = true
		case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY: // mounts a writable export
		default:
			writers = true
		}
	}
	if kind == transport.NFS && readers && writers {
		return errors.New("MULTI_NODE_READER_ONLY makes the whole nfs export read-only and cannot be mixed with a writable access mode; ask for one of them")
	}
	return nil
}

// singleNode tells whether the mode, by its CSI name, admits one node at a time.
func singleNode(mode string) bool { return strings.HasPrefix(mode, "SINGLE_NODE_") }

// admitPublication decides whether want may be published beside the records there are
// (block.md B-91 to B-96). exists means that the very record is there already and the
// grant may be repeated. It reads nothing but its arguments, and their order means nothing:
// the node's own record is looked at first.
func admitPublication(records []v1alpha1.PublishedNode, want v1alpha1.PublishedNode) (exists bool, err error) {
	own := slices.IndexFunc(records, func(r v1alpha1.PublishedNode) bool { return r.NodeID == want.NodeID })
	if own >= 0 {
		if err := sameNode(records[own], want); err != nil {
			return false, err
		}
	}
	for _, r := range records {
		if r.NodeID == want.NodeID {
			continue
		}
		if singleNode(r.AccessMode) || singleNode(want.AccessMode) || r.AccessMode != want.AccessMode {
			return false, csiserve.As(csiserve.FailedPrecondition,
				fmt.Errorf("volume is published to another node: %s has it as %s, %s asks for %s; stop its pod there and wait for the VolumeAttachment (none left: see docs/operations.md)", r.NodeID, r.AccessMode, want.NodeID, want.AccessMode))
		}
	}
	return own >= 0, nil
}

func sameNode(r, want v1alpha1.PublishedNode) error {
	if r.Revoking {
		return csiserve.As(csiserve.Aborted, fmt.Errorf("volume is still being revoked from node %s", r.NodeID))
	}
	if r.AccessMode != want.AccessMode || r.Readonly != want.Readonly {
		return csiserve.As(csiserve.AlreadyExists,
			fmt.Errorf("volume is published to node %s as %s, readonly %t; asked for %s, readonly %t",
				r.NodeID, r.AccessMode, r.Readonly, want.AccessMode, want.Readonly))
	}
	return nil
}
