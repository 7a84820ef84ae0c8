package controller

import (
	"errors"
	"fmt"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// modes are the access modes of block volumes (block.md B-63).
var modes = map[csi.VolumeCapability_AccessMode_Mode]bool{
	csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER:        true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:   true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER: true,
	csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:  true,
	csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:    true,
}

// checkCapability says why a capability is not supported, or nil.
func checkCapability(c *csi.VolumeCapability) error {
	mode := c.GetAccessMode().GetMode()
	if !modes[mode] {
		return fmt.Errorf("access mode %s is not supported by block volumes; use a SINGLE_NODE mode or MULTI_NODE_READER_ONLY", mode)
	}
	if c.GetMount() == nil && c.GetBlock() == nil {
		return errors.New("access type is missing; set mount or block")
	}
	return nil
}

// checkCapabilities refuses an empty list and any unsupported entry.
func checkCapabilities(field string, caps []*csi.VolumeCapability) error {
	if len(caps) == 0 {
		return csiserve.Invalid(field, "is empty; at least one capability is required")
	}
	for i, c := range caps {
		if err := checkCapability(c); err != nil {
			return csiserve.Invalid(fmt.Sprintf("%s[%d]", field, i), err.Error())
		}
	}
	return nil
}

// singleNode tells whether the mode, by its CSI name, admits one node at a time.
func singleNode(mode string) bool { return strings.HasPrefix(mode, "SINGLE_NODE_") }

// admitPublication decides whether want may be published beside the records there are
// (block.md B-91 to B-96). exists means that the very record is there already and the
// grant may be repeated. It reads nothing but its arguments.
func admitPublication(records []v1alpha1.PublishedNode, want v1alpha1.PublishedNode) (exists bool, err error) {
	for _, r := range records {
		if r.NodeID == want.NodeID {
			if err := sameNode(r, want); err != nil {
				return false, err
			}
			exists = true
			continue
		}
		if singleNode(r.AccessMode) || singleNode(want.AccessMode) || r.AccessMode != want.AccessMode {
			return false, csiserve.As(csiserve.FailedPrecondition,
				fmt.Errorf("volume is published to another node: %s has it as %s, %s asks for %s", r.NodeID, r.AccessMode, want.NodeID, want.AccessMode))
		}
	}
	return exists, nil
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
