package dryrun

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pillar-csi/pillar/storage/zfs"
)

// zvolMajor is the major number of zvols; each has 16 minors.
const (
	zvolMajor  = 230
	zvolMinors = 16
)

// zpool is a ZFS pool. It takes nothing for itself.
type zpool struct {
	Bytes    int64               `json:"bytes"`
	Datasets map[string]*dataset `json:"datasets"` // by full name
}

// dataset is a filesystem, or a zvol.
type dataset struct {
	Volsize     int64             `json:"volsize,omitempty"` // 0: a filesystem
	Block       int64             `json:"volblocksize,omitempty"`
	Reservation int64             `json:"refreservation,omitempty"`
	Properties  map[string]string `json:"properties,omitempty"`

	minor   uint32
	content *content
}

func (d *dataset) volume() bool { return d.Volsize > 0 }

func (z *zpool) available() int64 {
	left := z.Bytes
	for _, d := range z.Datasets {
		left -= d.Reservation
	}
	return max(left, 0)
}

// parents makes the pool's root and every dataset down to the parent.
func (z *zpool) parents(pool, parent string) {
	name := pool
	for _, part := range append([]string{""}, strings.Split(parent, "/")...) {
		name = strings.TrimSuffix(name+"/"+part, "/")
		if z.Datasets[name] == nil {
			z.Datasets[name] = &dataset{}
		}
	}
}

// lookup answers the pool of a dataset's name, nil if there is none, and the dataset.
func (m *Machine) lookup(name string) (*zpool, *dataset) {
	pool, _, _ := strings.Cut(name, "/")
	z := m.ZFS[pool]
	if z == nil {
		return nil, nil
	}
	return z, z.Datasets[name]
}

// zfsCall is a command line of zfs.
type zfsCall struct {
	options map[string][]string
	names   []string
}

func parseZFS(args []string) (c zfsCall, err error) {
	c.options = map[string][]string{}
	for i := 0; i < len(args); i++ {
		switch a := args[i]; {
		case slices.Contains([]string{"-o", "-V", "-d", "-t"}, a) && i+1 < len(args):
			i++
			c.options[a] = append(c.options[a], args[i])
		case slices.Contains([]string{"-H", "-p", "-r", "-s"}, a):
			c.options[a] = nil
		case !strings.HasPrefix(a, "-"):
			c.names = append(c.names, a)
		default:
			return c, refuse(2, "no simulation of %q", a)
		}
	}
	return c, nil
}

func (m *Machine) zfs(args []string) (string, error) {
	c, err := parseZFS(args)
	if err != nil || len(c.names) < 2 {
		return "", errors.Join(err, refuse(2, "missing dataset argument"))
	}
	verb, names := c.names[0], c.names[1:]
	switch {
	case verb == "list":
		return m.zfsList(c, names)
	case verb == "create":
		return "", m.zfsCreate(c, names[0])
	case verb == "destroy":
		return "", m.zfsDestroy(names[0])
	case verb == "rename" && len(names) == 2:
		return "", m.zfsRename(names[0], names[1])
	case verb == "set" && len(names) > 1:
		return "", m.zfsSet(names[:len(names)-1], names[len(names)-1])
	}
	return "", refuse(2, "no simulation of zfs %s", verb)
}

func (m *Machine) zpool(args []string) (string, error) {
	c, err := parseZFS(args)
	if err != nil || !slices.Equal(c.options["-o"], []string{"health"}) || len(c.names) != 2 {
		return "", errors.Join(err, refuse(2, "no simulation of zpool %q", args))
	}
	if m.ZFS[c.names[1]] == nil {
		return "", refuse(1, "cannot open '%s': no such pool", c.names[1])
	}
	return "ONLINE\n", nil
}

// zfsList prints what is there of the datasets, or with -r the volumes directly below one.
func (m *Machine) zfsList(c zfsCall, names []string) (string, error) {
	var out, absent strings.Builder
	if _, below := c.options["-r"]; below {
		z, parent := m.lookup(names[0])
		if parent != nil {
			names = slices.DeleteFunc(slices.Sorted(maps.Keys(z.Datasets)), func(n string) bool {
				return filepath.Dir(n) != names[0] || !z.Datasets[n].volume()
			})
		}
	}
	for _, name := range names {
		z, d := m.lookup(name)
		if d == nil {
			fmt.Fprintf(&absent, "cannot open '%s': dataset does not exist\n", name)
			continue
		}
		var row []string
		for column := range strings.SplitSeq(strings.Join(c.options["-o"], ","), ",") {
			row = append(row, d.property(column, name, z))
		}
		out.WriteString(strings.Join(row, "\t") + "\n")
	}
	if absent.Len() > 0 {
		return out.String(), refuse(1, "%s", absent.String())
	}
	return out.String(), nil
}

// property prints one as zfs list -p does.
func (d *dataset) property(key, name string, z *zpool) string {
	switch {
	case key == "name":
		return name
	case key == "type" && d.volume():
		return "volume"
	case key == "type":
		return "filesystem"
	case key == "used" && d.volume():
		return fmt.Sprint(d.Reservation)
	case key == "used":
		return fmt.Sprint(z.Bytes - z.available())
	case key == "available":
		return fmt.Sprint(z.available())
	case key == "refreservation":
		return fmt.Sprint(d.Reservation)
	case key == "volsize" && d.volume():
		return fmt.Sprint(d.Volsize)
	case key == "volblocksize" && d.volume():
		return fmt.Sprint(d.Block)
	case key == "volmode" && d.volume():
		return d.mode()
	}
	if value, ok := d.Properties[key]; ok {
		return value
	}
	return "-"
}

// mode is the volmode as zfs shows it: geom is full.
func (d *dataset) mode() string {
	mode := cmp.Or(d.Properties["volmode"], "default")
	return strings.Replace(mode, "geom", "full", 1)
}

// zfsCreate makes a zvol that reserves nothing.
func (m *Machine) zfsCreate(c zfsCall, name string) error {
	z, have := m.lookup(name)
	_, parent := m.lookup(filepath.Dir(name))
	size, err := strconv.ParseInt(strings.Join(c.options["-V"], ""), 10, 64)
	_, sparse := c.options["-s"]
	switch {
	case err != nil || size <= 0 || !sparse:
		return refuse(2, "no simulation of a zfs create without -s and -V")
	case parent == nil:
		return refuse(1, "cannot create '%s': parent does not exist", name)
	case have != nil:
		return refuse(1, "cannot create '%s': dataset already exists", name)
	}
	d := &dataset{Block: 16 << 10, Properties: map[string]string{}}
	for _, o := range c.options["-o"] {
		key, value, _ := strings.Cut(o, "=")
		d.Properties[key] = value
	}
	if text, ok := d.Properties["volblocksize"]; ok {
		if d.Block = blockSize(text); d.Block == 0 {
			return refuse(1, "cannot create '%s': 'volblocksize' must be power of 2 from 512B to 128K", name)
		}
	}
	d.Volsize = (size + d.Block - 1) / d.Block * d.Block
	z.Datasets[name] = d
	return m.attach(name, d)
}

// blockSize reads "16K", "16384" and the like; 0: no power of two from 512 bytes to 128 KiB.
func blockSize(text string) int64 {
	digits, shift := strings.TrimRight(strings.ToUpper(text), "KB"), 0
	if digits != text && strings.Contains(strings.ToUpper(text), "K") {
		shift = 10
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if n <<= shift; err != nil || n < 512 || n > 128<<10 || n&(n-1) != 0 {
		return 0
	}
	return n
}

func (m *Machine) zfsDestroy(name string) error {
	z, d := m.lookup(name)
	switch {
	case d == nil:
		return refuse(1, "cannot open '%s': dataset does not exist", name)
	case !d.volume():
		return refuse(1, "cannot destroy '%s': filesystem has children", name)
	case d.content.inUse():
		return refuse(1, "cannot destroy '%s': dataset is busy", name)
	}
	delete(z.Datasets, name)
	delete(m.open, "/dev/zvol/"+name)
	return errors.Join(os.RemoveAll(m.root.Path("sys/block", d.node())), os.RemoveAll(m.root.Path(d.numbered())), os.Remove(m.root.Path("dev", d.node())))
}

func (m *Machine) zfsRename(from, to string) error {
	z, d := m.lookup(from)
	_, taken := m.lookup(to)
	switch {
	case d == nil:
		return refuse(1, "cannot open '%s': dataset does not exist", from)
	case taken != nil:
		return refuse(1, "cannot rename '%s': dataset already exists", from)
	}
	delete(z.Datasets, from)
	z.Datasets[to] = d
	delete(m.open, "/dev/zvol/"+from)
	m.open["/dev/zvol/"+to] = d.content
	return nil
}

func (m *Machine) zfsSet(assignments []string, name string) error {
	z, d := m.lookup(name)
	if d == nil {
		return refuse(1, "cannot open '%s': dataset does not exist", name)
	}
	for _, a := range assignments {
		var err error
		switch key, value, _ := strings.Cut(a, "="); {
		case key == "volsize":
			err = m.zfsResize(z, d, name, value)
		case key == "volblocksize":
			err = refuse(1, "cannot set property for '%s': 'volblocksize' is readonly", name)
		case key == "refreservation" && value == "auto":
			err = d.reserve(z, name, d.Volsize)
		case key == "refreservation":
			d.Reservation = 0
		default:
			d.Properties[key] = value
			err = m.show(d)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) zfsResize(z *zpool, d *dataset, name, value string) error {
	size, err := strconv.ParseInt(value, 10, 64)
	if err != nil || size <= 0 || size%d.Block != 0 {
		return refuse(1, "cannot set property for '%s': 'volsize' must be a multiple of volume block size", name)
	}
	if d.Reservation > 0 {
		if err := d.reserve(z, name, size); err != nil {
			return err
		}
	}
	d.Volsize = size
	d.content.resize(size)
	return m.show(d)
}

func (d *dataset) reserve(z *zpool, name string, bytes int64) error {
	if bytes-d.Reservation > z.available() {
		return refuse(1, "cannot set property for '%s': size is greater than available space", name)
	}
	d.Reservation = bytes
	return nil
}

// attach gives a zvol its device.
func (m *Machine) attach(name string, d *dataset) error {
	for d.minor = 0; m.zvolTaken(d); d.minor += zvolMinors {
	}
	d.content = newContent(d.Volsize)
	d.content.is(number{zvolMajor, d.minor})
	m.open["/dev/zvol/"+name] = d.content
	node := m.root.Path("dev", d.node())
	return errors.Join(os.MkdirAll(filepath.Dir(node), 0o755), os.WriteFile(node, nil, 0o600), m.show(d))
}

func (m *Machine) zvolTaken(d *dataset) bool {
	for _, z := range m.ZFS {
		for _, other := range z.Datasets {
			if other != d && other.content != nil && other.minor == d.minor {
				return true
			}
		}
	}
	return false
}

func (d *dataset) node() string { return fmt.Sprintf("zd%d", d.minor) }

// numbered is sysfs's directory of the zvol's device by its numbers.
func (d *dataset) numbered() string {
	return fmt.Sprintf("sys/dev/block/%d:%d", zvolMajor, d.minor)
}

// show has sysfs tell the zvol's size, in sectors, and whether its device has partitions.
func (m *Machine) show(d *dataset) error {
	minors := "256"
	if d.mode() == "dev" {
		minors = "1"
	}
	return errors.Join(
		m.files(filepath.Join("sys/block", d.node()), map[string]string{"size": fmt.Sprint(d.Volsize / 512)}),
		m.files(d.numbered(), map[string]string{"ext_range": minors}))
}

// Ask answers which zvol a device is; path may be a link to it.
func (m *Machine) Ask(path string) (zfs.Identity, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return zfs.Identity{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, z := range m.ZFS {
		for name, d := range z.Datasets {
			if d.volume() && d.node() == filepath.Base(path) {
				return zfs.Identity{Dataset: name, Size: d.Volsize, Major: zvolMajor, Minor: d.minor}, nil
			}
		}
	}
	return zfs.Identity{}, fmt.Errorf("%s is no zvol", path)
}
