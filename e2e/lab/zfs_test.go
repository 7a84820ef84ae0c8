//go:build lab

package lab_test

import (
	"testing"

	"github.com/pillar-csi/pillar/e2e/lab"
)

// TestLab_ZFS writes a zvol of a real pool, and reads it after the pool was away.
func TestLab_ZFS(t *testing.T) {
	ctx, l := open(t)
	g, err := l.Boot(ctx, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11", MemoryMB: 768,
		Disks: []string{"1GiB"}, Modules: []string{"zfs"}})
	if err != nil {
		t.Fatal(err) // says to run `lab build zfs` where it was not
	}
	wrote := do(t, ctx, g, `zpool create -O mountpoint=none tank `+g.Disks[0]+`
zfs create -V 256M tank/demo; udevadm settle
dd if=/dev/urandom of=/dev/zvol/tank/demo bs=1M count=64 oflag=direct conv=fsync status=none
head -c 64M /dev/zvol/tank/demo | sha256sum; zpool export tank`)
	read := do(t, ctx, g, `zpool import -d /dev tank; udevadm settle
head -c 64M /dev/zvol/tank/demo | sha256sum`)
	if wrote != read {
		t.Errorf("wrote %s, the imported pool's zvol has %s", wrote, read)
	}
	status := do(t, ctx, g, "zpool scrub -w tank; zpool status -x; zpool destroy tank; rmmod zfs")
	if status != "all pools are healthy" {
		t.Errorf("zpool status -x after a scrub = %q, want all pools are healthy", status)
	}
}
