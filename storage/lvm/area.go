package lvm

import (
	"fmt"

	"github.com/pillar-csi/pillar/storage"
)

// area is the smallest metadata area of a group, in bytes. The text of the group's metadata
// may take half of it, and does not grow with the disks (lib/format_text/format-text.c).
type area struct {
	size int64
	free int64 // of the half
}

// areaReserve is what no new volume may take of the metadata area, in bytes: LVM also writes
// the whole text anew to delete something, or to mend the group. A volume takes about 1 KiB.
const areaReserve = 16 << 10

// trouble answers why nothing new may be made in the group, with what mends it, or nil (H-54).
func (a area) trouble(vg string) error {
	if a.size == 0 || a.free >= areaReserve {
		return nil
	}
	return fmt.Errorf("%w: the metadata area of volume group %s has %d of %d bytes left, and a volume takes about a thousand: %s", storage.ErrNoSpace, vg, a.free, a.size/2, a.more(vg))
}

// pressure complains of an area that will be full. Its words change at steps only.
func (a area) pressure(vg string) error {
	for _, step := range steps {
		if used := a.size/2 - a.free; a.size > 0 && used >= a.size/2*int64(step)/int64(full) {
			return fmt.Errorf("volume group %s: more than %d %% of its metadata area is used, and nothing can be made when all is: %s", vg, step/100, a.more(vg))
		}
	}
	return nil
}

// more says how a group gets room for its metadata: an area keeps its size. What is on one
// disk alone is lost with it, and the tools keep no backup.
func (a area) more(vg string) string {
	return fmt.Sprintf("delete volumes, or vgextend --metadatasize 128m %s DISK DISK, two disks on which the group's metadata then is, and pvchange --metadataignore y its other disks", vg)
}
