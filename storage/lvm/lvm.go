// Package lvm makes volumes as logical volumes of one volume group, by lvm(8) and its JSON
// reports.
//
//	<vg>                     exists before us; never created, extended or removed here
//	  <thin pool>            as well; only activated
//	  <name>                 one LV per volume, linear or in the thin pool
//	    tag pillar-volume=<UID>  the lifecycle it was made for; no other touches it
//	    tag pillar-incomplete    until it provably shows nothing of an earlier LV
//	/dev/<vg>/<name>         its node; used only after its numbers and dm UUID were compared
//
// The tools run with the settings in the constant settings, whatever the machine's
// lvm.conf says: no udev is needed, and what is inside a volume is never looked at.
package lvm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
)

// commandTimeout bounds one run of an LVM tool. Each takes well under a second, a refused
// removal five (retry_deactivation); one that takes longer hangs on a dead disk or on
// somebody's lock, and dies with everything it started.
const commandTimeout = 30 * time.Second

// commands is how many tools run at once: they would only queue for LVM's own lock.
const commands = 1

// settings are given to every tool, so that a pod with its own lvm.conf and a machine with
// the distribution's behave the same (lvm.conf(5)):
//
//	activation  the tools make and remove nodes below /dev themselves, and start no dmeventd
//	backup      no copies of the metadata in a container's /etc; the archive only grows
//	devices     PVs inside LVs (scan_lvs) and inside other volumes (see filter) belong to
//	            who made them; nobody else's devices file or udev database decides
//	log, report the words and values that this package knows
//
// activation_mode keeps an LV from being activated without the disks it has lost: it would
// read as missing_stripe_filler says, which may be zeroes.
const settings = `activation{udev_sync=0 udev_rules=0 monitoring=0 activation_mode="degraded"} backup{backup=0 archive=0} ` +
	`log{prefix="  " command_names=0 silent=0 report_command_log=0} report{binary_values_as_numeric=0 list_item_separator=","} ` +
	`devices{scan_lvs=0 use_devicesfile=0 obtain_device_list_from_udev=0 external_device_info_source="none"}`

// incompleteTag marks an LV between lvcreate and the proof that it is blank. lvcreate sets
// it, the last step of Create removes it; it stays where a crash came between (B-222).
const incompleteTag = "pillar-incomplete"

// ownerTag marks an LV as its owner's from lvcreate on.
const ownerTag = "pillar-volume="

// The provisioning modes.
const (
	Linear = "linear"
	Thin   = "thin"
)

// Config names the volume group.
type Config struct {
	VolumeGroup string
	ThinPool    string // empty: none

	// Tenants is how the NQNs of volumes begin: on a disk of such a subsystem is a tenant's
	// content. Empty: none is.
	Tenants string

	// Open opens a block device with os.O_* flags; nil opens the kernel's.
	Open func(path string, flag int) (Device, error)
}

// Group is a volume group as a storage.Backend.
type Group struct {
	run    host.Runner
	root   host.Root
	cfg    Config
	looked atomic.Bool // at the thin pool: see seen
	open   func(lv report, flag int) (device, error)
	flush  func(ctx context.Context) error // before success is answered
}

var _ storage.Backend = (*Group)(nil)

// New answers the volume group of cfg. Nothing is run or checked yet.
func New(run host.Runner, root host.Root, cfg Config) *Group {
	if cfg.Open == nil {
		cfg.Open = openNode
	}
	g := &Group{run: host.NewFew(run, commands, commandTimeout), root: root, cfg: cfg}
	g.open, g.flush = g.openVerified, g.flushDisks
	return g
}

// lvm runs one tool. Its error is classified.
func (g *Group) lvm(ctx context.Context, tool string, args ...string) ([]byte, error) {
	filter, err := g.filter()
	if err != nil {
		return nil, err
	}
	out, err := g.run.Run(ctx, tool, append([]string{"--config", settings + " " + filter}, args...)...)
	if err = classify(err); errors.Is(err, errDamaged) {
		err = fmt.Errorf("%w: %w", thinPool{target: g.target(g.cfg.ThinPool)}.damaged("is damaged"), err)
	}
	return out, err
}

// Create implements storage.Backend. An LV that an earlier Create left unfinished is
// removed and made anew; one without the tag is never wiped, whatever the request (B-222).
func (g *Group) Create(ctx context.Context, s storage.Spec) (storage.Volume, error) {
	v, err := g.create(ctx, s)
	if err == nil {
		err = g.flush(ctx)
	}
	if err != nil {
		return storage.Volume{}, fmt.Errorf("create LV %s: %w", s.ID, err)
	}
	return v, nil
}

func (g *Group) create(ctx context.Context, s storage.Spec) (storage.Volume, error) {
	if err := g.check(s); err != nil {
		return storage.Volume{}, err
	}
	room, err := g.room(ctx, s.LVM.Mode)
	if err != nil {
		return storage.Volume{}, missing(err)
	}
	size, err := roundUp(s.Bytes, room.extent)
	if err != nil {
		return storage.Volume{}, err
	}
	lv, err := g.own(ctx, s.ID.Name, s.Owner)
	if err == nil && lv.incomplete() {
		if err := g.remove(ctx, lv); err != nil {
			return storage.Volume{}, fmt.Errorf("remove what an earlier create left: %w", err)
		}
		room.free += lv.size
		err = storage.ErrNotFound
	}
	switch {
	case errors.Is(err, storage.ErrNotFound):
		if err := room.take(size); err != nil {
			return storage.Volume{}, err
		}
		return g.make(ctx, s, size)
	case err != nil:
		return storage.Volume{}, err
	case lv.made() != s.LVM.Mode || lv.size != size:
		return storage.Volume{}, fmt.Errorf("%w: as %s of %d bytes, asked for %s of %d", storage.ErrConflict, lv.layout, lv.size, s.LVM.Mode, size)
	}
	if err := g.finished(lv); err != nil {
		return storage.Volume{}, err
	}
	_, err = g.activate(ctx, &lv, s.Owner)
	return g.volume(lv), err
}

// make makes a new LV and takes its tag away once nothing of an earlier one shows.
func (g *Group) make(ctx context.Context, s storage.Spec, size int64) (storage.Volume, error) {
	name := s.ID.Name
	argv := []string{"--yes", "--type", s.LVM.Mode, "--activate", "y", "--addtag", ownerTag + string(s.Owner), "--addtag", incompleteTag}
	if s.LVM.Mode == Thin { // lvcreate refuses --zero: the pool's chunks are zeroed, or none is taken
		argv = append(argv, "--virtualsize", fmt.Sprintf("%db", size), "--thinpool", g.cfg.ThinPool)
	} else {
		argv = append(argv, "--wipesignatures", "y", "--zero", "y", "--size", fmt.Sprintf("%db", size))
	}
	if _, err := g.lvm(ctx, "lvcreate", append(argv, "--name", name, g.cfg.VolumeGroup)...); err != nil {
		return storage.Volume{}, missing(err)
	}
	lv, err := g.own(ctx, name, s.Owner)
	if err != nil {
		return storage.Volume{}, err
	}
	if lv.size != size || !lv.incomplete() {
		return storage.Volume{}, fmt.Errorf("lvcreate made %d bytes with tags %q, asked for %d and %s", lv.size, lv.tags, size, incompleteTag)
	}
	if lv.made() == Linear { // a thin LV takes its chunks only when they are written
		if err := g.wipe(lv); err != nil {
			return storage.Volume{}, err
		}
	}
	if err := g.blank(lv); err != nil {
		return storage.Volume{}, err
	}
	if _, err := g.lvm(ctx, "lvchange", "--deltag", incompleteTag, g.target(name)); err != nil {
		return storage.Volume{}, err
	}
	return g.volume(lv), nil
}

// Inspect implements storage.Backend. An LV of any kind occupies the name, also one that
// its create never finished: it can be deleted, or created anew. A missing volume group is
// ErrPrecondition, as it says nothing about the volume.
func (g *Group) Inspect(ctx context.Context, name string) (storage.Volume, error) {
	err := CheckName(name)
	var lv report
	if err == nil {
		lv, err = g.find(ctx, name)
	}
	if err != nil {
		return storage.Volume{}, fmt.Errorf("inspect LV %s: %w", g.target(name), err)
	}
	return g.volume(lv), nil
}

// own finds an LV that was made for the owner, finished or not.
func (g *Group) own(ctx context.Context, name string, owner storage.Owner) (report, error) {
	if err := CheckName(name); err != nil {
		return report{}, err
	}
	lv, err := g.find(ctx, name)
	if err == nil {
		err = g.owned(lv, owner)
	}
	return lv, err
}

func (g *Group) owned(lv report, owner storage.Owner) error {
	if !owner.Owns(lv.owner()) {
		return fmt.Errorf("%w: its tags are %q; if it is: lvchange --addtag %s%s %s", storage.ErrForeign, lv.tags, ownerTag, owner, g.target(lv.name))
	}
	return nil
}

// usable finds an owner's LV that is finished.
func (g *Group) usable(ctx context.Context, name string, owner storage.Owner) (report, error) {
	lv, err := g.own(ctx, name, owner)
	if err == nil {
		err = g.finished(lv)
	}
	if err != nil {
		return report{}, err
	}
	return lv, nil
}

// finished is storage.ErrPrecondition for what is no volume of this agent, or not yet one.
func (g *Group) finished(lv report) error {
	switch {
	case lv.made() == Thin && lv.pool != g.cfg.ThinPool:
		return fmt.Errorf("%w: it is in thin pool %q, the agent has %q", storage.ErrPrecondition, lv.pool, g.cfg.ThinPool)
	case lv.made() == "":
		return fmt.Errorf("%w: its layout is %s (%s)", storage.ErrPrecondition, lv.layout, lv.role)
	case lv.incomplete():
		return fmt.Errorf("%w: its create never finished (tag %s)", storage.ErrPrecondition, incompleteTag)
	}
	return nil
}

// Activate implements storage.Backend: the LV's device is there and is this LV's. Only a
// finished LV is activated, and nothing but it and the thin pool it is in.
func (g *Group) Activate(ctx context.Context, name string, owner storage.Owner) (storage.Volume, error) {
	lv, err := g.usable(ctx, name, owner)
	var id storage.DeviceID
	if err == nil {
		id, err = g.activate(ctx, &lv, owner)
	}
	if err != nil {
		return storage.Volume{}, fmt.Errorf("activate LV %s: %w", g.target(name), err)
	}
	v := g.volume(lv)
	v.Device = id
	return v, nil
}

// activate leaves the LV as it then is in lv.
func (g *Group) activate(ctx context.Context, lv *report, owner storage.Owner) (storage.DeviceID, error) {
	if !lv.active {
		_, err := g.lvm(ctx, "lvchange", "--activate", "y", g.target(lv.name))
		if err == nil {
			*lv, err = g.usable(ctx, lv.name, owner)
		}
		if err != nil {
			return storage.DeviceID{}, err
		}
	}
	return g.settle(ctx, *lv)
}

// settle proves an active LV's device and repairs what an LVM tool that was killed half
// way, or another /dev than before, leaves behind. An LV of another size than its mapping
// may just have grown: who only looks for devices does not hold its lock.
func (g *Group) settle(ctx context.Context, lv report) (storage.DeviceID, error) {
	id, err := g.verify(lv)
	switch {
	case errors.Is(err, os.ErrNotExist):
		_, err = g.lvm(ctx, "vgmknodes", g.target(lv.name))
	case errors.Is(err, errOldMapping):
		lv, err = g.refresh(ctx, lv)
	default:
		return id, err
	}
	if err != nil {
		return storage.DeviceID{}, err
	}
	return g.verify(lv)
}

// refresh loads an LV's mapping again and answers the LV as it then is.
func (g *Group) refresh(ctx context.Context, lv report) (report, error) {
	if _, err := g.lvm(ctx, "lvchange", "--refresh", g.target(lv.name)); err != nil {
		return report{}, err
	}
	now, err := g.find(ctx, lv.name)
	if err == nil && now.dmUUID != lv.dmUUID {
		err = fmt.Errorf("the name is now another LV's, %s, and was %s's", now.dmUUID, lv.dmUUID)
	}
	return now, err
}

// Delete implements storage.Backend. An LV that others go with stays (see alone). In a thin
// pool whose metadata is full, LVM forgets the LV, fails, and frees its chunks later.
func (g *Group) Delete(ctx context.Context, name string, owner storage.Owner) error {
	lv, err := g.own(ctx, name, owner)
	if err == nil {
		err = g.remove(ctx, lv)
	}
	if err == nil || errors.Is(err, storage.ErrNotFound) {
		err = g.flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("delete LV %s: %w", g.target(name), err)
	}
	return nil
}

func (g *Group) remove(ctx context.Context, lv report) error {
	if !lv.alone() {
		return fmt.Errorf("%w: it is %s, %s, and nothing pillar removes", storage.ErrPrecondition, lv.layout, lv.role)
	}
	_, err := g.lvm(ctx, "lvremove", "--yes", g.target(lv.name))
	if errors.Is(err, storage.ErrBusy) {
		return fmt.Errorf("%s: %w", blockdev.Held(g.root, lv.major, lv.minor), err)
	}
	return missing(err)
}

// List implements storage.Backend: the finished LVs that pillar could have made.
func (g *Group) List(ctx context.Context) ([]storage.Volume, error) {
	lvs, err := g.lvs(ctx, g.cfg.VolumeGroup)
	if err != nil {
		return nil, fmt.Errorf("list LVs of %s: %w", g.cfg.VolumeGroup, missing(err))
	}
	var volumes []storage.Volume
	for _, lv := range lvs {
		if g.finished(lv) == nil {
			volumes = append(volumes, g.volume(lv))
		}
	}
	return volumes, nil
}

// Pool implements storage.Backend: the group's size and free bytes, or the thin pool's size
// and the share of it that is not used (B-227).
func (g *Group) Pool(ctx context.Context) (storage.Pool, error) {
	pool := storage.Pool{Name: g.cfg.VolumeGroup, Type: "lvm", ThinPool: g.cfg.ThinPool}
	if g.cfg.ThinPool != "" {
		p, err := g.seen(ctx)
		if err == nil && !p.known {
			err = p.trouble()
		}
		if err != nil {
			return storage.Pool{}, fmt.Errorf("thin pool %s: %w", g.target(g.cfg.ThinPool), poolMissing(err))
		}
		pool.Capacity = storage.Capacity{Total: p.size, Available: p.available()}
		return pool, nil
	}
	vg, err := g.group(ctx)
	if err != nil {
		return storage.Pool{}, fmt.Errorf("volume group %s: %w", g.cfg.VolumeGroup, poolMissing(err))
	}
	pool.Capacity = storage.Capacity{Total: vg.size, Available: vg.free}
	return pool, nil
}

func (g *Group) target(name string) string { return g.cfg.VolumeGroup + "/" + name }

func (g *Group) volume(lv report) storage.Volume {
	return storage.Volume{
		ID:         storage.VolumeID{Pool: g.cfg.VolumeGroup, Name: lv.name},
		Owner:      lv.owner(),
		Bytes:      lv.size,
		DevicePath: "/dev/" + g.target(lv.name),
	}
}

// roundUp answers the next multiple of the extent size: what LVM makes of the request, as
// it takes sizes in bytes only in multiples of a sector (B-223).
func roundUp(bytes, extent int64) (int64, error) {
	if bytes > math.MaxInt64-extent {
		return 0, fmt.Errorf("%w: no volume group holds %d bytes", storage.ErrNoSpace, bytes)
	}
	return (bytes + extent - 1) / extent * extent, nil
}
