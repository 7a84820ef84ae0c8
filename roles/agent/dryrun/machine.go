package dryrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/memory"
)

// Pool is a pool that a Machine has: a volume group, or a ZFS pool.
type Pool struct {
	VolumeGroup   string
	ThinPool      string // in the group; empty: none
	ZFS           string // name of a ZFS pool, if it is no group
	ParentDataset string // below the ZFS pool; empty: none
	Bytes         int64
}

// Effect is something that a host would have been made to do.
type Effect struct {
	Program []string // argument vector of a program that changes something
	Write   string   // of configfs: "mkdir NAME", "set NAME VALUE", "link NAME", ...; of a device: "write ..."
}

func (e Effect) String() string {
	if e.Program != nil {
		return "run " + quoted(e.Program)
	}
	return e.Write
}

// quoted writes an argument vector as one could type it.
func quoted(argv []string) string {
	words := make([]string, len(argv))
	for i, a := range argv {
		words[i] = a
		if a == "" || strings.ContainsAny(a, " \t\n'\"$`\\|&;<>(){}[]*?#~!") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// Machine is a storage node in memory. Its pools survive a restart as a machine's do, its
// active devices and its configfs do not.
type Machine struct {
	dir    string
	root   host.Root // of the files that the backends read: sysfs, links below /dev
	tell   func(Effect)
	kernel *memory.Kernel

	mu sync.Mutex
	disks
	open map[string]*content // by device path, "/dev/vg0/a"
}

var _ host.Runner = (*Machine)(nil)

// disks is what survives.
type disks struct {
	Version int               `json:"version"`
	Born    int               `json:"born"` // volumes ever made: no two have the same UUID
	Groups  map[string]*group `json:"groups"`
	ZFS     map[string]*zpool `json:"zfs"`
}

// simulation is the file in the state directory.
const simulation = "simulation.json"

// Simulated tells whether a state directory belongs to a Machine: its marks are of volumes
// that never were.
func Simulated(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, simulation))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// NewMachine answers a machine with these pools, empty unless an earlier one left volumes in
// the state directory dir. tell is called before every effect. Close removes what the
// machine has there besides.
func NewMachine(dir string, pools []Pool, tell func(Effect)) (*Machine, error) {
	m := &Machine{dir: dir, tell: tell, open: map[string]*content{}, disks: disks{Version: 1}}
	m.kernel = memory.New(func(line string) { m.tell(Effect{Write: line}) })
	m.root = host.Root(filepath.Join(dir, "machine"))
	err := errors.Join(m.Close(), m.load()) // a former one's files say what it had active
	for _, p := range pools {
		m.add(p)
	}
	if err == nil {
		err = errors.Join(m.boot(), m.save())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("simulated machine: %w", err), m.Close())
	}
	return m, nil
}

// Close removes the machine's files, except its pools.
func (m *Machine) Close() error { return os.RemoveAll(string(m.root)) }

// Root is where the machine has its files.
func (m *Machine) Root() host.Root { return m.root }

// Configfs is the machine's, mounted, with nvmet loaded.
func (m *Machine) Configfs() configfs.Dir { return m.kernel.Dir() }

func (m *Machine) load() error {
	data, err := os.ReadFile(filepath.Join(m.dir, simulation))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m.disks)
	}
	if err == nil && m.Version != 1 {
		err = fmt.Errorf("version %d, want 1", m.Version)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(m.dir, simulation), err)
	}
	return nil
}

func (m *Machine) save() error {
	data, err := json.MarshalIndent(m.disks, "", " ")
	if err != nil {
		return err
	}
	return durable.Write(filepath.Join(m.dir, simulation), data, 0o600)
}

// add makes a pool, or gives one that is there the size it has now.
func (m *Machine) add(p Pool) {
	if m.Groups == nil {
		m.Groups, m.ZFS = map[string]*group{}, map[string]*zpool{}
	}
	if p.ZFS != "" {
		z := m.ZFS[p.ZFS]
		if z == nil {
			z = &zpool{Datasets: map[string]*dataset{}}
			m.ZFS[p.ZFS] = z
		}
		z.Bytes = p.Bytes
		z.parents(p.ZFS, p.ParentDataset)
		return
	}
	g := m.Groups[p.VolumeGroup]
	if g == nil {
		g = &group{LVs: map[string]*lv{}}
		m.Groups[p.VolumeGroup] = g
	}
	m.open[pvPath(p.VolumeGroup)] = newContent(0) // to be flushed, nothing else
	g.Bytes = p.Bytes / extent * extent
	g.thinPool(p.ThinPool, m.born())
}

// boot makes what a kernel shows after its start: the module, the devices of the zvols.
func (m *Machine) boot() error {
	var err error
	for _, module := range []string{"nvmet_tcp", "zfs", "dm_thin_pool"} {
		err = errors.Join(err, os.MkdirAll(m.root.Path("sys/module", module), 0o755))
	}
	for vg, g := range m.Groups {
		for name, v := range g.LVs {
			if v.pool() { // as LVM's autoactivation does
				err = errors.Join(err, m.activate(vg+"/"+name, v))
			}
		}
	}
	for _, z := range m.ZFS {
		for name, d := range z.Datasets {
			if d.volume() {
				err = errors.Join(err, m.attach(name, d))
			}
		}
	}
	return err
}

// Reboot takes every device away but the zvols', which come with their pool.
func (m *Machine) Reboot() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for vg, g := range m.Groups {
		for name, v := range g.LVs {
			if v.active {
				if !v.pool() {
					v.content.drop()
				}
				_ = m.deactivate(vg+"/"+name, v)
			}
		}
	}
}

func (m *Machine) born() int {
	m.Born++
	return m.Born
}

// failure is a program that ran and said no.
type failure struct {
	code   int
	stderr string
}

func (f *failure) Error() string { return f.stderr }

// refuse answers a failure in the words of the tool.
func refuse(code int, format string, args ...any) error {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// Run implements host.Runner.
func (m *Machine) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	argv := append([]string{name}, args...)
	if !reads(argv) {
		m.tell(Effect{Program: argv})
	}
	out, err := m.run(name, args)
	if !reads(argv) {
		err = errors.Join(err, m.save())
	}
	var no *failure
	if errors.As(err, &no) {
		return []byte(out), &host.ExitError{Argv: argv, Code: no.code, Stderr: strings.TrimSpace(no.stderr)}
	}
	return []byte(out), err
}

func (m *Machine) run(name string, args []string) (string, error) {
	switch name {
	case "zfs":
		return m.zfs(args)
	case "zpool":
		return m.zpool(args)
	}
	return m.lvm(name, args)
}
