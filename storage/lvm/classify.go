package lvm

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// errNoGroup is LVM's own word that there is no such volume group.
var errNoGroup = errors.New("no such volume group")

// errDamaged is a thin pool whose metadata thin_check(8) refuses, or is not the one that the
// group's metadata is about.
var errDamaged = errors.New("damaged thin pool")

// said is what the tools print, from LVM2 2.03.11 to 2.03.31 (lib/metadata, lib/report,
// tools). The first line that fits decides. Each phrase is said of one thing only.
var said = []struct {
	begin, end string
	kind       error
}{
	{`Multiple VGs found with the same name: skipping `, ``, storage.ErrPrecondition}, // LVM says what mends it
	{`Volume group "`, `" not found`, errNoGroup},
	{`Failed to find logical volume "`, `"`, storage.ErrNotFound},
	{`Logical Volume "`, `" already exists in volume group`, storage.ErrConflict},
	{`Volume group "`, `" has insufficient free space`, storage.ErrNoSpace},
	{`Insufficient free space: `, ` extents needed`, storage.ErrNoSpace},
	{`Insufficient suitable `, `allocatable extents`, storage.ErrNoSpace},
	{`WARNING: Thin pool `, ` has unexpected transaction id `, errDamaged}, // lvcreate then says that the pool is full
	{`Thin pool `, ` transaction_id is `, errDamaged},
	{`Cannot create new thin volume, free space in thin pool `, ` reached threshold`, storage.ErrNoSpace},
	{`Cannot change VG `, ` while PVs are missing.`, storage.ErrPrecondition},
	{`Refusing activation of partial LV `, ``, storage.ErrPrecondition},
	{`Check of pool `, `Manual repair required!`, errDamaged},
	{`Logical volume `, ` contains a filesystem in use.`, storage.ErrBusy},
	{`Logical volume `, ` is used by another device.`, storage.ErrBusy},
	{`Logical volume `, ` in use.`, storage.ErrBusy},
}

// classify gives an LVM tool's failure its kind, by its text and by nothing else: exit
// status 5 is every failure's. Text we do not know stays unclassified.
func classify(err error) error {
	var exit *host.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	for line := range strings.Lines(exit.Stderr) {
		line = strings.TrimSpace(line)
		for _, s := range said {
			rest, ok := strings.CutPrefix(line, s.begin)
			if ok && strings.Contains(rest, s.end) {
				return fmt.Errorf("%w: %w", s.kind, err)
			}
		}
	}
	return err
}
