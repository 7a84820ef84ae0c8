package lvm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// filter is what LVM may look at (lvm.conf(5)), as the machine is now. On a storage node that
// is a worker, too, volumes are attached as disks, and what is on them a pod has written: a
// volume group of our own name, at which LVM refuses every command, or worse, of our own UUID.
//
// A zvol and a volume's local claim tell by their name. Of NVMe disks those are let in whose
// subsystem is not one of Config.Tenants, and no others: one that is attached meanwhile is
// not looked at either. There is no pattern that accepts everything: a device is let in as
// soon as one of its names is (lib/filters/filter-regex.c), and udev gives each several.
func (g *Group) filter() (string, error) {
	patterns := []string{`r|^/dev/zd|`, `r|^/dev/zvol/|`, `r|^/dev/mapper/pillar-local-|`}
	disks, err := filepath.Glob(g.root.Path("sys/block/nvme*"))
	if err != nil {
		return "", err
	}
	for _, disk := range disks {
		nqn, err := os.ReadFile(filepath.Join(disk, "device/subsysnqn"))
		switch {
		case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV): // just detached
		case err != nil:
			return "", fmt.Errorf("whose disk is %s: %w", filepath.Base(disk), err)
		case g.cfg.Tenants == "" || !strings.HasPrefix(string(nqn), g.cfg.Tenants):
			patterns = append(patterns, `a|^/dev/`+filepath.Base(disk)+`(p[0-9]+)?$|`)
		}
	}
	return `devices{filter=["` + strings.Join(append(patterns, `r|^/dev/nvme|`), `","`) + `"]}`, nil
}
