package lvm

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pillar-csi/pillar/storage"
)

// report is an LV as lvs(8) shows it.
type report struct {
	name         string
	size         int64  // bytes
	layout       string // lv_layout: "linear", "thin,pool", ...
	role         string // lv_role: "public", "public,snapshot,thicksnapshot", ...
	pool         string // pool_lv: of a thin LV
	tags         []string
	dmUUID       string // of its mapping: "LVM-", VG UUID, LV UUID, without dashes
	active       bool
	major, minor uint32 // of its device while active
}

// made answers the mode in which pillar could have made it, or nothing.
func (r report) made() string {
	switch {
	case !strings.HasPrefix(r.role, "public") || strings.Contains(r.role, "snapshot"):
		return ""
	case r.layout == "linear":
		return Linear
	case r.layout == "thin,sparse":
		return Thin
	}
	return ""
}

// alone tells whether lvremove takes nothing but this LV: with a thick or an external
// origin go its snapshots, with a thin pool everybody's volumes (H-50). Thin snapshots stay
// when their origin goes.
func (r report) alone() bool {
	return r.made() != "" && (r.role == "public" || r.made() == Thin && (r.role == "public,origin,thinorigin" || r.role == "public,origin,thinorigin,multithinorigin"))
}

func (r report) incomplete() bool { return slices.Contains(r.tags, incompleteTag) }

// owner answers whose it is. Two answers are none.
func (r report) owner() storage.Owner {
	var owner storage.Owner
	for _, tag := range r.tags {
		uid, ok := strings.CutPrefix(tag, ownerTag)
		if ok && owner != "" {
			return ""
		}
		if ok {
			owner = storage.Owner(uid)
		}
	}
	return owner
}

// vgReport is a VG as vgs(8) shows it, sizes in bytes.
type vgReport struct {
	size, free, extent int64
	lost               int64 // disks that LVM misses
	area               area
}

// trouble answers why LVM changes nothing in the group, or soon will not.
func (g *Group) trouble(vg vgReport) error {
	return cmp.Or(g.lostDisks(vg.lost), vg.area.trouble(g.cfg.VolumeGroup))
}

// lostDisks is nil, or says that the group misses some. LVM then changes nothing but to remove
// LVs, and activates none that has extents there.
func (g *Group) lostDisks(count int64) error {
	if count == 0 {
		return nil
	}
	vg := g.cfg.VolumeGroup
	return fmt.Errorf("%w: volume group %s misses %d of its disks: what is on them cannot be used, and nothing be created or grown: vgs -o pv_name,pv_uuid,pv_missing %s shows which; bring them back, and where LVM still misses one: vgextend --restoremissing %s DISK",
		storage.ErrPrecondition, vg, count, vg, vg)
}

// find answers one LV of the group. storage.ErrNotFound: LVM says the group, which is
// there, has no such LV.
func (g *Group) find(ctx context.Context, name string) (report, error) {
	lvs, err := g.lvs(ctx, g.target(name))
	if err != nil {
		return report{}, missing(err)
	}
	if len(lvs) != 1 || lvs[0].name != name {
		return report{}, fmt.Errorf("lvs answered %d LVs for the one asked", len(lvs))
	}
	return lvs[0], nil
}

// lvs reports the LVs of a target: a group, or one LV. Hidden LVs are left out.
func (g *Group) lvs(ctx context.Context, target string) ([]report, error) {
	if err := CheckGroup(g.cfg.VolumeGroup); err != nil {
		return nil, err
	}
	out, err := g.lvm(ctx, "lvs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options",
		"lv_name,lv_size,lv_layout,lv_role,pool_lv,lv_tags,vg_uuid,lv_uuid,lv_active,lv_kernel_major,lv_kernel_minor", target)
	if err != nil {
		return nil, err
	}
	return parseLVs(out)
}

// group reports the volume group. errNoGroup: LVM says there is none.
func (g *Group) group(ctx context.Context) (vgReport, error) {
	if err := CheckGroup(g.cfg.VolumeGroup); err != nil {
		return vgReport{}, err
	}
	out, err := g.lvm(ctx, "vgs", "--reportformat", "json", "--units", "b", "--nosuffix", "--options",
		"vg_name,vg_size,vg_free,vg_extent_size,vg_missing_pv_count,vg_mda_size,vg_mda_free", g.cfg.VolumeGroup)
	if err != nil {
		return vgReport{}, err
	}
	return parseVG(out, g.cfg.VolumeGroup)
}

// rows answers the rows of a report: {"report":[{"<kind>":[{...}]}]}, every value text.
func rows(data []byte, kind string) ([]map[string]string, error) {
	var doc struct {
		Report []map[string][]map[string]string `json:"report"`
	}
	if err := json.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("parse %s report: %w", kind, err)
	}
	if len(doc.Report) != 1 || doc.Report[0][kind] == nil {
		return nil, fmt.Errorf("parse %s report: want one list of them in %q", kind, data)
	}
	return doc.Report[0][kind], nil
}

func parseLVs(data []byte) ([]report, error) {
	list, err := rows(data, "lv")
	if err != nil {
		return nil, err
	}
	lvs := make([]report, 0, len(list))
	for _, row := range list {
		lv, err := parseLV(row)
		if err != nil {
			return nil, fmt.Errorf("parse LV %q: %w", row["lv_name"], err)
		}
		lvs = append(lvs, lv)
	}
	return lvs, nil
}

func parseLV(row map[string]string) (report, error) {
	size, err := bytesOf(row, "lv_size")
	if err != nil {
		return report{}, err
	}
	lv := report{
		name:   row["lv_name"],
		size:   size,
		layout: row["lv_layout"],
		role:   row["lv_role"],
		pool:   row["pool_lv"],
		dmUUID: "LVM-" + strings.ReplaceAll(row["vg_uuid"]+row["lv_uuid"], "-", ""),
		active: row["lv_active"] == "active",
	}
	if lv.name == "" || lv.layout == "" || lv.role == "" || len(lv.dmUUID) != len("LVM-")+64 || lv.made() == Thin && lv.pool == "" {
		return report{}, fmt.Errorf("report %v lacks a field", row)
	}
	if tags := row["lv_tags"]; tags != "" {
		lv.tags = strings.Split(tags, ",")
	}
	if !lv.active {
		return lv, nil
	}
	major, err := strconv.ParseUint(row["lv_kernel_major"], 10, 32)
	if err != nil {
		return report{}, fmt.Errorf("lv_kernel_major: %w", err)
	}
	minor, err := strconv.ParseUint(row["lv_kernel_minor"], 10, 32)
	if err != nil {
		return report{}, fmt.Errorf("lv_kernel_minor: %w", err)
	}
	lv.major, lv.minor = uint32(major), uint32(minor)
	return lv, nil
}

func parseVG(data []byte, name string) (vgReport, error) {
	list, err := rows(data, "vg")
	if err != nil {
		return vgReport{}, err
	}
	if len(list) != 1 || list[0]["vg_name"] != name {
		return vgReport{}, fmt.Errorf("vgs answered %d groups for the one asked", len(list))
	}
	var vg vgReport
	for field, to := range map[string]*int64{"vg_size": &vg.size, "vg_free": &vg.free, "vg_extent_size": &vg.extent, "vg_missing_pv_count": &vg.lost, "vg_mda_size": &vg.area.size, "vg_mda_free": &vg.area.free} {
		if *to, err = bytesOf(list[0], field); err != nil {
			return vgReport{}, err
		}
	}
	if vg.extent == 0 {
		return vgReport{}, fmt.Errorf("vg_extent_size is 0")
	}
	return vg, nil
}

func bytesOf(row map[string]string, field string) (int64, error) {
	n, err := strconv.ParseInt(row[field], 10, 64)
	if err == nil && n < 0 {
		err = fmt.Errorf("negative")
	}
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", field, row[field], err)
	}
	return n, nil
}

// missing keeps a missing group or thin pool apart from a missing volume: its disks may come
// back, and the volume with them (B-204).
func missing(err error) error {
	if errors.Is(err, errNoGroup) || errors.Is(err, errNoThinPool) {
		return fmt.Errorf("%w: %w", storage.ErrPrecondition, err)
	}
	return err
}

// poolMissing is missing for who asked for the pool itself.
func poolMissing(err error) error {
	if errors.Is(err, errNoGroup) || errors.Is(err, errNoThinPool) {
		return fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	}
	return err
}
