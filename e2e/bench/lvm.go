package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/lvm"
)

// lvmRow compares creating and deleting a volume with the bare lvcreate and lvremove: what
// looking first, wiping, tagging and reading back cost.
var lvmRow = row{name: "lvm_create_delete_vs_lvcreate_lvremove", goal: 5, work: lvmPillar, baseline: lvmBare}

const (
	group  = "bench"
	mebi64 = 64 << 20
)

var programs = host.Exec{Env: []string{"DM_DISABLE_UDEV=1"}}

// withGroup makes the volume group unless it is there.
func withGroup(ctx context.Context, disk string) error {
	if _, err := programs.Run(ctx, "vgs", group); err == nil {
		return nil
	}
	_, err := programs.Run(ctx, "vgcreate", "-y", group, disk)
	return err
}

func lvmPillar(ctx context.Context, disk string) error {
	if err := withGroup(ctx, disk); err != nil {
		return err
	}
	g := lvm.New(programs, "", lvm.Config{VolumeGroup: group})
	_, err := g.Create(ctx, storage.Spec{
		ID: storage.VolumeID{Pool: group, Name: "pvc-bench"}, Owner: "bench", Bytes: mebi64, Backend: storage.LVMLV,
		LVM: &storage.LVMParams{VolumeGroup: group, Mode: "linear"},
	})
	return errors.Join(err, g.Delete(ctx, "pvc-bench", "bench"))
}

func lvmBare(ctx context.Context, disk string) error {
	if err := withGroup(ctx, disk); err != nil {
		return err
	}
	_, err := programs.Run(ctx, "lvcreate", "-y", "-Wy", "-Zy", "-n", "bare", "-L", fmt.Sprintf("%db", mebi64), group)
	if err != nil {
		return err
	}
	_, err = programs.Run(ctx, "lvremove", "-y", group+"/bare")
	return err
}
