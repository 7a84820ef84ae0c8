package lvm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// flushDisks has the group's disks write what is in their caches. LVM's tools write the
// group's metadata past the kernel's cache and flush nothing (lib/device/bcache.c), so that a
// power cut takes back what a tool said it had done: an LV that was deleted is there again,
// one that was created or grown is not. Who answers success flushes first, also when there
// was nothing left to do: the process before may have died before its flush.
func (g *Group) flushDisks(ctx context.Context) error {
	out, err := g.lvm(ctx, "vgs", "--reportformat", "json", "--options", "pv_name", g.cfg.VolumeGroup)
	if err != nil {
		return fmt.Errorf("disks to flush: %w", missing(err))
	}
	disks, err := parsePVs(out)
	if err != nil {
		return fmt.Errorf("disks to flush: %w", err)
	}
	for _, disk := range disks {
		if err := g.flushDisk(disk); err != nil {
			return fmt.Errorf("flush %s: %w", disk, err)
		}
	}
	return nil
}

func (g *Group) flushDisk(path string) error {
	d, err := g.cfg.Open(g.root.Path(path), os.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// parsePVs answers the paths of a group's physical volumes. One that is missing has no path
// ("[unknown]") and nothing to flush.
func parsePVs(data []byte) (paths []string, err error) {
	list, err := rows(data, "vg")
	for _, row := range list {
		if path := row["pv_name"]; filepath.IsAbs(path) {
			paths = append(paths, path)
		}
	}
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("no physical volume in %q", data)
	}
	return paths, err
}
