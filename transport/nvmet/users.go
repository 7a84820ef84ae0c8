package nvmet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pillar-csi/pillar/transport/configfs"
	"golang.org/x/sys/unix"
)

// Users answers the NQNs of the subsystems, ours or not, that have a namespace on the
// given device (block.md B-268). A disabled one counts: it can be enabled at any moment.
// One whose path leads nowhere counts as a user only if it is enabled, which is an error,
// because its device cannot be told.
func (t *Target) Users(ctx context.Context, major, minor uint32) ([]string, error) {
	var users []string
	subsystems := t.nvmet.Sub("subsystems")
	nqns, err := subsystems.List()
	if errors.Is(err, fs.ErrNotExist) { // nvmet is not loaded
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, nqn := range nqns {
		uses, err := looked(func() (bool, error) { return t.uses(subsystems.Sub(nqn), unix.Mkdev(major, minor)) })
		if err != nil {
			return nil, fmt.Errorf("devices of subsystem %s: %w", nqn, err)
		}
		if uses {
			users = append(users, nqn)
		}
	}
	return users, ctx.Err()
}

func (t *Target) uses(subsystem configfs.Dir, rdev uint64) (bool, error) {
	if ok, err := subsystem.Exists(); !ok || err != nil {
		return false, err
	}
	namespaces := subsystem.Sub("namespaces")
	ids, err := namespaces.List()
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		ns := namespaces.Sub(id)
		path, err := ns.Read("device_path")
		if err != nil {
			return false, err
		}
		enabled, err := ns.Read("enable")
		if err != nil {
			return false, err
		}
		have, err := t.number(path)
		if errors.Is(err, fs.ErrNotExist) && enabled != "1" {
			continue
		}
		if err != nil || have == rdev {
			return err == nil, err
		}
	}
	return false, nil
}
