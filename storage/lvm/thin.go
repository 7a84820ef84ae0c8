package lvm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/pillar-csi/pillar/storage"
)

// errNoThinPool is LVM's own word that the group, which is there, has no such thin pool.
var errNoThinPool = errors.New("no such thin pool")

// NoThinPool tells whether an error says that the group is there and its thin pool is not.
func NoThinPool(err error) bool { return errors.Is(err, errNoThinPool) }

// percent is a share in hundredths of a percent, as lvs(8) shows it: 100.00 is shown of
// what is full to the last block, and of nothing else.
type percent int64

const full percent = 100_00

func (p percent) String() string { return fmt.Sprintf("%d.%02d %%", p/100, p%100) }

// What lv_health_status says of a thin pool (lvmreport(7), lib/metadata/lv.c).
const (
	outOfData        = "out_of_data"
	metadataReadOnly = "metadata_read_only"
)

// thinPool is a thin pool as lvs(8) shows it.
type thinPool struct {
	target         string // "vg0/tp0"
	size, extent   int64  // bytes
	active         bool   // by itself, not by one of its volumes alone
	known          bool   // the kernel has it, so use, health and check are what they are
	data, metadata percent
	health         string // lv_health_status; empty is well
	check          bool   // dm-thin set its needs_check flag
	zeroes         bool   // new chunks are zeroed
	lost           bool   // the group misses disks
	group          error  // trouble of the group: LVM changes nothing in it
	area           area
}

// available is B-227: size × (1 - data%).
func (p thinPool) available() int64 {
	left := int64(full - p.data)
	return max(0, p.size/int64(full)*left+p.size%int64(full)*left/int64(full))
}

// trouble answers why nothing new may be taken from the pool, with the command that mends
// it, or nil. Its volumes promise more than there is: that alone is none (B-225).
func (p thinPool) trouble() error {
	switch {
	case p.group != nil: // without a disk the pool may be said to be damaged, and must not be repaired
		return p.group
	case p.data >= full || p.health == outOfData:
		return fmt.Errorf("%w: thin pool %s is full, %s of its data is used: lvextend --size +SIZE %s, or delete volumes", storage.ErrNoSpace, p.target, p.data, p.target)
	case p.metadata >= full:
		return fmt.Errorf("%w: thin pool %s is read-only, %s of its metadata is used: lvextend --poolmetadatasize +SIZE %s", storage.ErrNoSpace, p.target, p.metadata, p.target)
	case p.health == metadataReadOnly:
		return p.damaged("is read-only")
	case p.health != "":
		return p.damaged("is " + p.health)
	case p.check:
		return p.damaged("needs a check")
	case !p.known:
		return fmt.Errorf("%w: thin pool %s is not active, so nobody knows how full it is: lvchange --activate y %s", storage.ErrPrecondition, p.target, p.target)
	case !p.zeroes: // a chunk would show what a deleted volume left in it, around what was written
		return fmt.Errorf("%w: thin pool %s does not zero new chunks, which would show the content of deleted volumes: lvchange --zero y %s", storage.ErrPrecondition, p.target, p.target)
	}
	return nil
}

// damaged names the way back. Nothing here ever takes it (H-53).
func (p thinPool) damaged(what string) error {
	return fmt.Errorf("%w: thin pool %s %s: stop what uses its volumes, lvchange --activate n them and the pool, lvconvert --repair %s", storage.ErrPrecondition, p.target, what, p.target)
}

// steps are the shares at which a pool that fills complains, once at each.
var steps = []percent{95_00, 90_00, 80_00}

// pressure complains of a pool that will be full. Its words change at steps only.
func (p thinPool) pressure() error {
	for _, step := range steps {
		switch {
		case p.data >= step:
			return fmt.Errorf("thin pool %s: more than %d %% of its data is used, and writes fail when all is: lvextend --size +SIZE %s", p.target, step/100, p.target)
		case p.metadata >= step:
			return fmt.Errorf("thin pool %s: more than %d %% of its metadata is used, and writes fail when all is: lvextend --poolmetadatasize +SIZE %s", p.target, step/100, p.target)
		}
	}
	return nil
}

// thinPool reports the configured thin pool. errNoThinPool: LVM says there is none, or it is
// something else.
func (g *Group) thinPool(ctx context.Context) (thinPool, error) {
	if err := errors.Join(CheckGroup(g.cfg.VolumeGroup), CheckName(g.cfg.ThinPool)); err != nil {
		return thinPool{}, err
	}
	target := g.target(g.cfg.ThinPool)
	out, err := g.lvm(ctx, "lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options",
		"lv_name,lv_size,lv_layout,lv_active,data_percent,metadata_percent,lv_health_status,lv_check_needed,zero,vg_extent_size,vg_missing_pv_count,vg_mda_size,vg_mda_free", target)
	if errors.Is(err, storage.ErrNotFound) { // no word about a volume
		return thinPool{}, fmt.Errorf("%w %s: %s", errNoThinPool, target, err.Error())
	}
	if err != nil {
		return thinPool{}, err
	}
	p, lost, err := parseThinPool(out, g.cfg.ThinPool)
	p.target, p.lost, p.group = target, lost > 0, g.trouble(vgReport{lost: lost, area: p.area})
	return p, err
}

func parseThinPool(data []byte, name string) (p thinPool, lost int64, err error) {
	list, err := rows(data, "lv")
	if err != nil {
		return thinPool{}, 0, err
	}
	if len(list) != 1 || list[0]["lv_name"] != name {
		return thinPool{}, 0, fmt.Errorf("lvs answered %d LVs for the thin pool asked", len(list))
	}
	row := list[0]
	if row["lv_layout"] != "thin,pool" {
		return thinPool{}, 0, fmt.Errorf("%w: %s is %q", errNoThinPool, name, row["lv_layout"])
	}
	p = thinPool{
		active: row["lv_active"] == "active",
		known:  row["data_percent"] != "",
		health: row["lv_health_status"],
		check:  row["lv_check_needed"] == "check needed",
		zeroes: row["zero"] == "zero",
	}
	for field, to := range map[string]*int64{"lv_size": &p.size, "vg_extent_size": &p.extent, "vg_missing_pv_count": &lost, "vg_mda_size": &p.area.size, "vg_mda_free": &p.area.free} {
		if *to, err = bytesOf(row, field); err != nil {
			return thinPool{}, 0, err
		}
	}
	if p.extent == 0 {
		return thinPool{}, 0, errors.New("vg_extent_size is 0")
	}
	if !p.known { // of a failed pool the kernel tells nothing else
		return p, lost, nil
	}
	for field, to := range map[string]*percent{"data_percent": &p.data, "metadata_percent": &p.metadata} {
		if *to, err = percentOf(row, field); err != nil {
			return thinPool{}, 0, err
		}
	}
	return p, lost, nil
}

func percentOf(row map[string]string, field string) (percent, error) {
	share, err := strconv.ParseFloat(row[field], 64)
	if err == nil && !(share >= 0 && share <= 100) {
		err = errors.New("no share")
	}
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", field, row[field], err)
	}
	return percent(share*100 + 0.5), nil
}

// wake activates the thin pool by itself, so that it stays when its last volume goes: how
// full a pool is only the kernel knows.
func (g *Group) wake(ctx context.Context) (thinPool, error) {
	if _, err := g.lvm(ctx, "lvchange", "--activate", "y", g.target(g.cfg.ThinPool)); err != nil {
		return thinPool{}, err
	}
	return g.thinPool(ctx)
}

// seen reports the thin pool. After a reboot nobody may have activated it, so a process does
// once; later it leaves that to the administrator, who may be repairing the pool. A disk that
// comes late, or a machine with too much to do, is no repair: it is tried again.
func (g *Group) seen(ctx context.Context) (thinPool, error) {
	p, err := g.thinPool(ctx)
	if err != nil {
		return thinPool{}, err
	}
	if p.active {
		g.looked.Store(true)
	}
	if g.looked.Load() || p.lost {
		return p, nil
	}
	p, err = g.wake(ctx)
	if err == nil || errors.Is(err, errDamaged) {
		g.looked.Store(true)
	}
	return p, err
}

// room is what new volumes and growing ones take from.
type room struct {
	extent  int64 // bytes; sizes are multiples
	free    int64 // bytes
	trouble error // nothing may be taken
}

// endless is the free space of a thin pool: what its volumes promise has no bound.
const endless = 1 << 62

// room answers where LVs of a mode go.
func (g *Group) room(ctx context.Context, mode string) (room, error) {
	if mode == Linear {
		vg, err := g.group(ctx)
		return room{extent: vg.extent, free: vg.free, trouble: g.trouble(vg)}, err
	}
	p, err := g.thinPool(ctx)
	if err == nil && !p.active {
		p, err = g.wake(ctx)
	}
	return room{p.extent, endless, p.trouble()}, err
}

// take answers storage.ErrNoSpace, or the room's trouble, if so many bytes cannot be taken.
func (r room) take(bytes int64) error {
	if r.trouble != nil {
		return r.trouble
	}
	if bytes > r.free {
		return fmt.Errorf("%w: %d bytes needed, %d free", storage.ErrNoSpace, bytes, r.free)
	}
	return nil
}

// Health answers what is wrong with the group, nil if nothing is. A thin pool complains
// before it is full, too.
func (g *Group) Health(ctx context.Context) error {
	if g.cfg.ThinPool == "" {
		vg, err := g.group(ctx)
		if err != nil {
			return fmt.Errorf("volume group %s: %w", g.cfg.VolumeGroup, poolMissing(err))
		}
		return cmp.Or(g.trouble(vg), vg.area.pressure(g.cfg.VolumeGroup))
	}
	p, err := g.seen(ctx)
	if err != nil {
		return fmt.Errorf("thin pool %s: %w", g.target(g.cfg.ThinPool), poolMissing(err))
	}
	if err := p.trouble(); err != nil {
		return err
	}
	return cmp.Or(p.pressure(), p.area.pressure(g.cfg.VolumeGroup))
}
