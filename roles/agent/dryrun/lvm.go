package dryrun

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// extent is the extent size of every simulated group, LVM's default, in bytes.
const extent = 4 << 20

// dmMajor is the major number of device-mapper devices, as most machines have it.
const dmMajor = 253

// group is a volume group.
type group struct {
	Bytes int64          `json:"bytes"`
	LVs   map[string]*lv `json:"lvs"`
}

// lv is a logical volume.
type lv struct {
	Born   int      `json:"born"`
	Bytes  int64    `json:"bytes"`
	Layout string   `json:"layout"` // lv_layout
	Role   string   `json:"role"`   // lv_role
	Pool   string   `json:"pool,omitempty"`
	Tags   []string `json:"tags,omitempty"`

	minor   uint32
	active  bool
	content *content
}

// thinPool gives the group a thin pool of nine tenths of its size, unless it has it.
func (g *group) thinPool(name string, born int) {
	if name == "" || g.LVs[name] != nil {
		return
	}
	g.LVs[name] = &lv{Born: born, Bytes: g.Bytes / 10 * 9 / extent * extent, Layout: "thin,pool", Role: "private"}
}

func (v *lv) pool() bool { return v.Layout == "thin,pool" }

// used answers the bytes that were written to the volumes of a thin pool.
func (g *group) used(pool string) (bytes int64) {
	for _, v := range g.LVs {
		if v.Pool == pool && v.content != nil {
			bytes += v.content.written()
		}
	}
	return bytes
}

// known tells whether the kernel has a thin pool: by itself, or for one of its volumes.
func (g *group) known(pool string) bool {
	for name, v := range g.LVs {
		if v.active && (name == pool || v.Pool == pool) {
			return true
		}
	}
	return false
}

func (g *group) free() int64 {
	left := g.Bytes
	for _, v := range g.LVs {
		if v.Pool == "" {
			left -= v.Bytes
		}
	}
	return max(left, 0)
}

// valued are the options of the LVM tools that take a value, bare those that do not.
var (
	valued = []string{"--config", "--reportformat", "--units", "--options", "--type", "--activate", "--wipesignatures",
		"--zero", "--addtag", "--deltag", "--size", "--virtualsize", "--thinpool", "--name"}
	bare = []string{"--yes", "--nosuffix", "--refresh", "--nolocking"}
)

// lvmCall is a command line of an LVM tool.
type lvmCall struct {
	options map[string][]string
	target  string   // "vg0" or "vg0/a"
	more    []string // targets
}

func parseLVM(args []string) (c lvmCall, err error) {
	c.options = map[string][]string{}
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case slices.Contains(valued, a) && i+1 < len(args):
			i++
			c.options[a] = append(c.options[a], args[i])
		case slices.Contains(bare, a):
		case !strings.HasPrefix(a, "-") && c.target == "":
			c.target = a
		case !strings.HasPrefix(a, "-"):
			c.more = append(c.more, a)
		default:
			return c, refuse(3, "no simulation of %q", a)
		}
	}
	return c, nil
}

func (c lvmCall) value(option string) string { return strings.Join(c.options[option], " ") }

// bytes reads a size with the unit b.
func (c lvmCall) bytes(option string) (int64, error) {
	text, ok := strings.CutSuffix(c.value(option), "b")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !ok || n <= 0 || n%512 != 0 {
		return 0, refuse(3, "Invalid argument for %s: %s", option, c.value(option))
	}
	return (n + extent - 1) / extent * extent, nil
}

// lvm runs an LVM tool. What it prints on failure is what package lvm knows the tools by.
func (m *Machine) lvm(tool string, args []string) (string, error) {
	c, err := parseLVM(args)
	if err == nil && len(c.more) > 0 && tool != "lvchange" {
		err = refuse(3, "no simulation of %s of %q", tool, c.more)
	}
	if err != nil {
		return "", err
	}
	out, err := m.lvmOf(tool, c)
	for _, c.target = range c.more { // one that fails does not keep it from the others
		_, failed := m.lvmOf(tool, c)
		err = cmp.Or(err, failed)
	}
	return out, err
}

// lvmOf runs an LVM tool on one target.
func (m *Machine) lvmOf(tool string, c lvmCall) (string, error) {
	vg, name, one := strings.Cut(c.target, "/")
	g := m.Groups[vg]
	if g == nil {
		return "", refuse(5, `  Volume group "%s" not found`+"\n"+`  Cannot process volume group %s`, vg, vg)
	}
	switch tool {
	case "vgs":
		return report("vg", c, []func(string) (string, bool){g.column(vg)})
	case "lvcreate":
		return "", m.lvcreate(vg, g, c)
	}
	if one && g.LVs[name] == nil {
		return "", refuse(5, `  Failed to find logical volume "%s"`, c.target)
	}
	switch tool {
	case "lvs":
		return g.lvs(vg, name, c)
	case "lvchange":
		return "", m.lvchange(c.target, g.LVs[name], c)
	case "lvextend":
		return "", g.extend(c.target, g.LVs[name], c)
	case "lvremove":
		return "", m.lvremove(vg, name, g)
	case "vgmknodes":
		return "", nil
	}
	return "", fmt.Errorf("run %s: no simulation of it", tool)
}

func (g *group) lvs(vg, name string, c lvmCall) (string, error) {
	var rows []func(string) (string, bool)
	for _, n := range slices.Sorted(maps.Keys(g.LVs)) {
		if name == "" || n == name {
			rows = append(rows, g.LVs[n].column(vg, n, g))
		}
	}
	return report("lv", c, rows)
}

func (m *Machine) lvcreate(vg string, g *group, c lvmCall) error {
	name := c.value("--name")
	if g.LVs[name] != nil {
		return refuse(5, `  Logical Volume "%s" already exists in volume group "%s"`, name, vg)
	}
	v := &lv{Born: m.born(), Layout: "linear", Role: "public", Tags: c.options["--addtag"]}
	size := "--size"
	if c.value("--type") == "thin" {
		v.Layout, v.Pool, size = "thin,sparse", c.value("--thinpool"), "--virtualsize"
		switch p := g.LVs[v.Pool]; {
		case p == nil || !p.pool():
			return refuse(5, `  Pool %s not found in Volume group %s.`, v.Pool, vg)
		case g.used(v.Pool) >= p.Bytes:
			return refuse(5, `  Cannot create new thin volume, free space in thin pool %s/%s reached threshold.`, vg, v.Pool)
		}
	}
	var err error
	if v.Bytes, err = c.bytes(size); err != nil {
		return err
	}
	if free := g.free(); v.Pool == "" && v.Bytes > free {
		return refuse(5, `  Volume group "%s" has insufficient free space (%d extents): %d required.`, vg, free/extent, v.Bytes/extent)
	}
	g.LVs[name] = v
	return m.activate(vg+"/"+name, v)
}

func (m *Machine) lvchange(target string, v *lv, c lvmCall) error {
	v.Tags = slices.DeleteFunc(v.Tags, func(t string) bool { return slices.Contains(c.options["--deltag"], t) })
	v.Tags = append(v.Tags, c.options["--addtag"]...)
	switch c.value("--activate") {
	case "y":
		return m.activate(target, v)
	case "n":
		return m.deactivate(target, v)
	}
	return nil
}

func (g *group) extend(target string, v *lv, c lvmCall) error {
	size, err := c.bytes("--size")
	switch {
	case err != nil:
		return err
	case size <= v.Bytes:
		return refuse(5, "  New size given (%d extents) not larger than existing size (%d extents)", size/extent, v.Bytes/extent)
	case v.Pool == "" && size-v.Bytes > g.free():
		return refuse(5, "  Insufficient free space: %d extents needed, but only %d available", (size-v.Bytes)/extent, g.free()/extent)
	}
	v.Bytes = size
	if v.content != nil {
		v.content.resize(size)
	}
	return nil
}

func (m *Machine) lvremove(vg, name string, g *group) error {
	v := g.LVs[name]
	if v == nil {
		return refuse(5, `  Failed to find logical volume "%s/%s"`, vg, name)
	}
	if err := m.deactivate(vg+"/"+name, v); err != nil {
		return err
	}
	delete(g.LVs, name)
	return nil
}

// activate gives an LV its device, with what was written to it.
func (m *Machine) activate(target string, v *lv) error {
	if v.active {
		return nil
	}
	for v.minor = 0; m.minorTaken(v); v.minor++ {
	}
	v.active = true
	if v.pool() { // the kernel has it, and nobody a node for it
		return nil
	}
	if v.content == nil {
		v.content = newContent(v.Bytes)
	}
	v.content.is(number{dmMajor, v.minor})
	m.open["/dev/"+target] = v.content
	vg, name, _ := strings.Cut(target, "/")
	mapping := strings.ReplaceAll(vg, "-", "--") + "-" + strings.ReplaceAll(name, "-", "--")
	return m.files(v.sysfs(), map[string]string{
		"dm/uuid": "LVM-" + strings.ReplaceAll(vgUUID(vg)+v.uuid(), "-", ""), "dm/name": mapping,
	})
}

func (m *Machine) minorTaken(v *lv) bool {
	for _, g := range m.Groups {
		for _, other := range g.LVs {
			if other != v && other.active && other.minor == v.minor {
				return true
			}
		}
	}
	return false
}

func (m *Machine) deactivate(target string, v *lv) error {
	if !v.active {
		return nil
	}
	if v.pool() {
		v.active = false
		return nil
	}
	if v.content.inUse() {
		return refuse(5, "  Logical volume %s in use.", target)
	}
	v.active = false
	delete(m.open, "/dev/"+target)
	return os.RemoveAll(m.root.Path(v.sysfs()))
}

func (v *lv) sysfs() string { return fmt.Sprintf("sys/dev/block/%d:%d", dmMajor, v.minor) }

// files writes small files below dir, and the directory of holders that every device has.
func (m *Machine) files(dir string, content map[string]string) error {
	if err := os.MkdirAll(m.root.Path(dir, "holders"), 0o755); err != nil {
		return err
	}
	for name, text := range content {
		path := m.root.Path(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// report prints rows as the tools do with --reportformat json --units b --nosuffix.
func report(kind string, c lvmCall, rows []func(column string) (string, bool)) (string, error) {
	list := []map[string]string{}
	for _, row := range rows {
		cells := map[string]string{}
		for column := range strings.SplitSeq(c.value("--options"), ",") {
			value, ok := row(column)
			if !ok {
				return "", refuse(3, "  Unrecognised field: %s", column)
			}
			cells[column] = value
		}
		list = append(list, cells)
	}
	out, err := json.Marshal(map[string]any{"report": []map[string]any{{kind: list}}})
	return string(out), err
}

func (g *group) column(vg string) func(string) (string, bool) {
	cells := map[string]string{
		"pv_name": pvPath(vg), "vg_name": vg, "vg_uuid": vgUUID(vg), "vg_size": fmt.Sprint(g.Bytes), "vg_free": fmt.Sprint(g.free()), "vg_extent_size": fmt.Sprint(extent),
		"vg_missing_pv_count": "0", "vg_mda_size": areaSize, "vg_mda_free": areaFree,
	}
	return func(column string) (string, bool) { value, ok := cells[column]; return value, ok }
}

// What a new group's metadata area has, in bytes. Here it does not fill.
const (
	areaSize = "1044480"
	areaFree = "519680"
)

// pvPath is a group's only disk.
func pvPath(vg string) string { return "/dev/disk-of-" + vg }

func (v *lv) column(vg, name string, g *group) func(string) (string, bool) {
	cells := map[string]string{
		"vg_name": vg, "vg_uuid": vgUUID(vg), "vg_extent_size": fmt.Sprint(extent), "vg_missing_pv_count": "0", "vg_mda_size": areaSize, "vg_mda_free": areaFree, "lv_name": name, "lv_uuid": v.uuid(),
		"lv_size": fmt.Sprint(v.Bytes), "lv_layout": v.Layout, "lv_role": v.Role, "lv_tags": strings.Join(v.Tags, ","), "pool_lv": v.Pool,
		"lv_active": "", "lv_kernel_major": "-1", "lv_kernel_minor": "-1", "data_percent": "", "metadata_percent": "",
		"lv_health_status": "", "lv_check_needed": "", "zero": "",
	}
	if v.active {
		cells["lv_active"], cells["lv_kernel_major"], cells["lv_kernel_minor"] = "active", fmt.Sprint(dmMajor), fmt.Sprint(v.minor)
	}
	if v.pool() {
		cells["zero"] = "zero"
	}
	if v.pool() && g.known(name) {
		used := min(g.used(name), v.Bytes)
		cells["data_percent"], cells["metadata_percent"] = fmt.Sprintf("%.2f", 100*float64(used)/float64(v.Bytes)), "10.00"
		if used == v.Bytes {
			cells["lv_health_status"] = "out_of_data"
		}
	}
	return func(column string) (string, bool) { value, ok := cells[column]; return value, ok }
}
