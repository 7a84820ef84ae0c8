package e2e

import (
	"context"
	"fmt"
	"strings"

	"github.com/pillar-csi/pillar/e2e/lab"
)

// Where pillar keeps what must survive on the machines (deploy.md 1.3).
const (
	MarksDir   = "/var/lib/pillar-csi/agent/generations"
	RecordsDir = "/var/lib/pillar-csi/node"
)

// Storage looks at a storage node.
type Storage struct{ Guest *lab.Guest }

// MakeVG makes a volume group on the node's first spare disk, as its owner would have long
// before pillar came.
func (s Storage) MakeVG(ctx context.Context, vg string) error {
	_, err := s.Guest.Exec(ctx, fmt.Sprintf(
		"export DM_DISABLE_UDEV=1; vgs %[1]s >/dev/null 2>&1 || vgcreate -y %[1]s %[2]s", vg, s.Guest.Disks[0]))
	return err
}

// MakeThinPool makes a volume group with a thin pool on the node's second spare disk.
func (s Storage) MakeThinPool(ctx context.Context, vg, pool string) error {
	_, err := s.Guest.Exec(ctx, fmt.Sprintf(
		"export DM_DISABLE_UDEV=1; vgcreate -y %[1]s %[3]s && lvcreate -y -l 80%%VG --type thin-pool --poolmetadatasize 4m -n %[2]s %[1]s && vgchange -an %[1]s",
		vg, pool, s.Guest.Disks[1]))
	return err
}

// MakeZPool makes a ZFS pool with a parent dataset on the node's third spare disk. A pool
// that an earlier boot made is imported when the machine boots, as zfs-import.target does.
func (s Storage) MakeZPool(ctx context.Context, pool, parent string) error {
	_, err := s.Guest.Exec(ctx, fmt.Sprintf("zpool create -o cachefile=none -O mountpoint=none %[1]s %[3]s && zfs create %[1]s/%[2]s",
		pool, parent, s.Guest.Disks[2]))
	return err
}

// ExportZPool takes the pool away, as its owner may; nothing may have its zvols open.
func (s Storage) ExportZPool(ctx context.Context, pool string) error {
	_, err := s.Guest.Exec(ctx, "zpool export "+pool)
	return err
}

// ImportZPool brings a pool of MakeZPool back, unless it is there.
func (s Storage) ImportZPool(ctx context.Context, pool string) error {
	_, err := s.Guest.Exec(ctx, fmt.Sprintf(
		"zpool list %[1]s >/dev/null 2>&1 || zpool import -o cachefile=none -d %[2]s %[1]s", pool, s.Guest.Disks[2]))
	return err
}

// Zvols are the names of the zvols below a dataset.
func (s Storage) Zvols(ctx context.Context, dataset string) ([]string, error) {
	return lines(s.Guest.Exec(ctx, "zfs list -H -o name -t volume -r "+dataset))
}

// LVs are the names of the logical volumes of a volume group, its thin pool aside.
func (s Storage) LVs(ctx context.Context, vg string) ([]string, error) {
	return lines(s.Guest.Exec(ctx, "DM_DISABLE_UDEV=1 lvs --noheadings -o lv_name -S 'segtype != thin-pool' "+vg+" 2>/dev/null"))
}

// Subsystems are the NVMe subsystems the kernel target has, none if it is not loaded.
func (s Storage) Subsystems(ctx context.Context) ([]string, error) {
	return lines(s.Guest.Exec(ctx, "cd /sys/kernel/config; mountpoint . >/dev/null || exit 1; [ ! -e nvmet ] || ls nvmet/subsystems"))
}

// AllowedHosts are the host NQNs a subsystem admits.
func (s Storage) AllowedHosts(ctx context.Context, nqn string) ([]string, error) {
	return lines(s.Guest.Exec(ctx, "ls /sys/kernel/config/nvmet/subsystems/"+nqn+"/allowed_hosts"))
}

// Left says what a storage node still holds of pillar's volumes, in volume groups and below
// datasets; nothing is no error. The fencing marks stay by design: they are what stops a
// stale controller for ever.
func (s Storage) Left(ctx context.Context, groups []string, datasets ...string) error {
	subsystems, err := s.Subsystems(ctx)
	if err != nil {
		return err
	}
	found := map[string][]string{"NVMe subsystems": subsystems}
	for _, vg := range groups {
		if found["logical volumes of "+vg], err = s.LVs(ctx, vg); err != nil {
			return err
		}
	}
	for _, dataset := range datasets {
		if found["zvols of "+dataset], err = s.Zvols(ctx, dataset); err != nil {
			return err
		}
	}
	return left(s.Guest, found)
}

// Worker looks at a node that runs pods.
type Worker struct{ Guest *lab.Guest }

// Controllers are the NQNs of the NVMe controllers the kernel is connected to.
func (w Worker) Controllers(ctx context.Context) ([]string, error) {
	return lines(w.Guest.Exec(ctx, "for f in /sys/class/nvme/nvme*/subsysnqn; do cat $f 2>/dev/null || [ ! -e $f ] || exit 1; done"))
}

// Mounts are the mount table lines of pillar's volumes: NVMe devices and everything staged
// or published below the kubelet's directories for our driver.
func (w Worker) Mounts(ctx context.Context) ([]string, error) {
	return lines(w.Guest.Exec(ctx, `grep -E '/dev/nvme|plugins/kubernetes.io/csi/pillar-csi' /proc/mounts || [ $? = 1 ]`))
}

// Records are the node plugin's stage records.
func (w Worker) Records(ctx context.Context) ([]string, error) {
	return lines(w.Guest.Exec(ctx, "[ ! -e "+RecordsDir+" ] || find "+RecordsDir+" -maxdepth 1 -name '*.json'"))
}

// Left says what a worker still holds of pillar's volumes; nothing is no error.
func (w Worker) Left(ctx context.Context) error {
	found := map[string][]string{}
	for what, look := range map[string]func(context.Context) ([]string, error){
		"NVMe controllers": w.Controllers, "mounts": w.Mounts, "stage records": w.Records,
	} {
		got, err := look(ctx)
		if err != nil {
			return err
		}
		found[what] = got
	}
	return left(w.Guest, found)
}

func left(g *lab.Guest, found map[string][]string) error {
	var all []string
	for what, names := range found {
		if len(names) > 0 {
			all = append(all, fmt.Sprintf("%s: %s", what, strings.Join(names, ", ")))
		}
	}
	if len(all) > 0 {
		return fmt.Errorf("left on %s: %s", g.Spec.Name, strings.Join(all, "; "))
	}
	return nil
}

// lines splits a command's output into its non-empty lines, trimmed.
func lines(out string, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all, nil
}
