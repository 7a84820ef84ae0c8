package zfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// machine is /dev and /sys in a directory, and what the kernel calls each zvol device.
type machine struct {
	t    *testing.T
	root host.Root
	zd   map[string]Identity // by file name
}

func newMachine(t *testing.T) *machine {
	return &machine{t: t, root: host.Root(t.TempDir()), zd: map[string]Identity{}}
}

func (m *machine) add(zd, dataset string, bytes int64, sectors string) {
	m.zd[zd] = Identity{Dataset: dataset, Size: bytes}
	m.write("dev/"+zd, "")
	m.write("sys/block/"+zd+"/size", sectors+"\n")
}

func (m *machine) write(path, text string) {
	path = m.root.Path(path)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		m.t.Fatal(err)
	}
}

// ask resolves links, as opening does.
func (m *machine) ask(path string) (Identity, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return Identity{}, err
	}
	id, ok := m.zd[filepath.Base(path)]
	if !ok {
		return Identity{}, errors.New(path + " is no zvol")
	}
	return id, nil
}

func (m *machine) nodes() *nodes {
	return newNodes(m.root, m.ask)
}

func (m *machine) wantLink(want string) {
	m.t.Helper()
	if got, err := os.Readlink(m.root.Path("dev/zvol", dataset)); got != want {
		m.t.Errorf("the link leads to %q, %v, want %q", got, err, want)
	}
	if left, _ := filepath.Glob(m.root.Path("dev/zvol/tank/k8s/.pillar*")); len(left) > 0 {
		m.t.Errorf("left behind: %v", left)
	}
}

var zvol = report{name: dataset, kind: "volume", size: volsize, block: 16384, mode: "default"}

const sectors = "19552" // of volsize

// H-38, H-69, N-14: with udev's link, without, and with one that leads to another zvol.
func TestNodes_settle(t *testing.T) {
	tests := map[string]string{"no link": "", "udev's link": "../../../zd16", "a stale link": "../../../zd0", "a dangling link": "../../../zd99"}
	for name, link := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.add("zd0", "tank/k8s/pvc-0", volsize, sectors)
			m.add("zd16", dataset, volsize, sectors)
			m.add("zd32", "tank/k8s/pvc-2", 1<<20, "2048")
			if link != "" {
				m.write("dev/zvol/tank/k8s/pvc-0", "")
				if err := os.Symlink(link, m.root.Path("dev/zvol", dataset)); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err := m.nodes().settle(t.Context(), zvol)[dataset].Err; err != nil {
					t.Errorf("settle = %v", err)
				}
				m.wantLink("../../../zd16")
			}
		})
	}
}

// A device of the former volmode is not handed out: the kernel is about to replace it.
func TestNodes_settle_mode(t *testing.T) {
	tests := map[string]struct {
		mode, minors string
		want         error
	}{
		"no partitions, as asked":  {"dev", "1", nil},
		"partitions, as asked":     {"full", "256", nil},
		"partitions still":         {"dev", "256", fs.ErrNotExist},
		"no partitions still":      {"full", "1", fs.ErrNotExist},
		"either, as the module is": {"default", "1", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				m.add("zd0", dataset, volsize, sectors)
				m.write("sys/dev/block/0:0/ext_range", tt.minors+"\n")
				asked := zvol
				asked.mode = tt.mode
				if err := m.nodes().settle(t.Context(), asked)[dataset].Err; !errors.Is(err, tt.want) {
					t.Errorf("settle = %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// H-26: while a pool is suspended no device is opened to look what it is; one whose link leads
// to it is used.
func TestNodes_settle_suspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("zd0", dataset, volsize, sectors)
		m.write("proc/spl/kstat/zfs/tank/state", "ONLINE\n")
		m.write("proc/spl/kstat/zfs/other/state", "SUSPENDED\n")
		opened := 0
		n := newNodes(m.root, func(path string) (Identity, error) {
			opened += len(strings.Split(path, "/zd")) - 1
			return m.ask(path)
		})
		if err := n.settle(t.Context(), zvol)[dataset].Err; !errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), "pool other is SUSPENDED") || opened > 0 {
			t.Errorf("settle = %v with %d opens, want ErrPrecondition that names the pool, and none", err, opened)
		}
		m.write("dev/zvol/tank/k8s/x", "")
		if err := os.Symlink("../../../zd0", m.root.Path("dev/zvol", dataset)); err != nil {
			t.Fatal(err)
		}
		if err := n.settle(t.Context(), zvol)[dataset].Err; err != nil {
			t.Errorf("settle with a link = %v", err)
		}
	})
}

// H-37: a destroy waits for a device that is being added, and not for one that never comes.
func TestNodes_appear(t *testing.T) {
	tests := map[string]struct {
		mode           string
		comes, returns time.Duration
	}{
		"there":       {"default", 0, 0},
		"being added": {"default", 2 * time.Second, 2 * time.Second},
		"never":       {"default", time.Hour, appearWait},
		"has none":    {"none", time.Hour, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				m.add("zd0", dataset, volsize, sectors)
				begin, asked := time.Now(), zvol
				asked.mode = tt.mode
				n := newNodes(m.root, func(path string) (Identity, error) {
					if time.Since(begin) < tt.comes {
						return Identity{}, unix.ENXIO
					}
					return m.ask(path)
				})
				n.appear(t.Context(), asked)
				if got := time.Since(begin); got < tt.returns || got > tt.returns+devicePoll {
					t.Errorf("appear returns after %s, want %s", got, tt.returns)
				}
			})
		})
	}
}

// The mode in effect is the zvol's, or the module's.
func TestNodes_mode(t *testing.T) {
	m := newMachine(t)
	asked := zvol
	for module, want := range map[string]string{"1": "full", "2": "dev", "3": "none"} {
		m.write("sys/module/zfs/parameters/zvol_volmode", module+"\n")
		if got := m.nodes().mode(asked); got != want {
			t.Errorf("mode of default with zvol_volmode=%s = %s, want %s", module, got, want)
		}
	}
	asked.mode = "dev"
	if got := m.nodes().mode(asked); got != "dev" {
		t.Errorf("mode of dev = %s", got)
	}
}

// B-237: what is missing stays an error, and names the zvol.
func TestNodes_settle_fails(t *testing.T) {
	tests := map[string]func(*machine){
		"no device at all":         func(*machine) {},
		"only others of that size": func(m *machine) { m.add("zd0", "tank/k8s/pvc-0", volsize, sectors) },
		"of another size":          func(m *machine) { m.add("zd0", dataset, volsize-16384, "19520") },
		"a size sysfs invents":     func(m *machine) { m.add("zd0", dataset, volsize-16384, sectors) },
		"a snapshot's":             func(m *machine) { m.add("zd0", dataset+"@a", volsize, sectors) },
		"a node nobody knows": func(m *machine) {
			m.add("zd0", dataset, volsize, sectors)
			m.write("dev/zvol/"+dataset, "")
		},
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine(t)
				prepare(m)
				err := m.nodes().settle(t.Context(), zvol)[dataset].Err
				if !errors.Is(err, storage.ErrPrecondition) || errors.Is(err, storage.ErrNotFound) || !strings.Contains(err.Error(), dataset) {
					t.Errorf("settle = %v, want ErrPrecondition naming %s", err, dataset)
				}
			})
		})
	}
}

// H-38: a device that comes late is waited for; a caller's end is not outstayed.
func TestNodes_settle_late(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		n := m.nodes()
		ctx, cancel := context.WithTimeout(t.Context(), deviceWait/2)
		defer cancel()
		if err := n.settle(ctx, zvol)[dataset].Err; err == nil || ctx.Err() == nil {
			t.Errorf("settle = %v, want it to wait until the context's end", err)
		}
		m.add("zd0", dataset, volsize, sectors)
		if err := n.settle(t.Context(), zvol)[dataset].Err; err != nil {
			t.Errorf("settle = %v", err)
		}
	})
}

// B-237: waiting does not help against a missing permission.
func TestNodes_settle_permission(t *testing.T) {
	m := newMachine(t)
	m.add("zd0", dataset, volsize, sectors)
	n := m.nodes()
	n.ask = func(path string) (Identity, error) {
		return Identity{}, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
	}
	if err := n.settle(t.Context(), zvol)[dataset].Err; !errors.Is(err, fs.ErrPermission) || errors.Is(err, storage.ErrPrecondition) {
		t.Errorf("settle = %v, want the permission error alone", err)
	}
}

// H-26: the device of a suspended pool does not open; another's is found all the same, and
// the hanging one is not opened again until it has answered.
func TestNodes_hangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine(t)
		m.add("zd0", "wedged/pvc-0", volsize, sectors)
		m.add("zd16", dataset, volsize, sectors)
		n := m.nodes()
		back := make(chan struct{})
		var opened atomic.Int32
		n.ask = func(path string) (Identity, error) {
			if strings.HasSuffix(path, "zd0") {
				opened.Add(1)
				<-back
			}
			return m.ask(path)
		}
		for range 3 {
			if err := n.settle(t.Context(), zvol)[dataset].Err; err != nil {
				t.Errorf("settle = %v", err)
			}
			_ = os.Remove(m.root.Path("dev/zvol", dataset))
		}
		if n := opened.Load(); n != 1 {
			t.Errorf("the hanging device was opened %d times, want once", n)
		}
		close(back)
		synctest.Wait()
		if id, err := n.who(t.Context(), m.root.Path("dev/zd0")); err != nil || id.Dataset != "wedged/pvc-0" {
			t.Errorf("who = %+v, %v after the pool is back", id, err)
		}
	})
}

func TestNodes_forget(t *testing.T) {
	m := newMachine(t)
	m.add("zd0", dataset, volsize, sectors)
	n := m.nodes()
	if err := n.settle(t.Context(), zvol)[dataset].Err; err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.forget(dataset); err != nil {
			t.Errorf("forget = %v", err)
		}
		m.wantLink("")
	}
}

// A device that does not answer is not a missing one.
func TestNodes_scan_unknown(t *testing.T) {
	m := newMachine(t)
	m.add("zd0", "tank/k8s/pvc-0", volsize, sectors)
	n := m.nodes()
	if err := n.scan(t.Context(), zvol)[dataset].err; !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("scan of another's device = %v, want fs.ErrNotExist", err)
	}
	odd := errors.New("input/output error")
	n.ask = func(string) (Identity, error) { return Identity{}, odd }
	if err := n.scan(t.Context(), zvol)[dataset].err; !errors.Is(err, odd) || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("scan of a device that does not answer = %v, want %v alone", err, odd)
	}
}

// Of hundreds that are missing each look opens every device once, and no more.
func TestNodes_settle_many(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 300
		m := newMachine(t)
		var zvols []report
		for i := range count {
			z := zvol
			z.name = fmt.Sprint("tank/k8s/pvc-", i)
			zvols = append(zvols, z)
			m.add(fmt.Sprint("zd", i), fmt.Sprint("tank/other/", i), volsize, sectors)
		}
		m.add("zd1000", "tank/k8s/pvc-7", volsize, sectors)
		opened := 0
		n := newNodes(m.root, func(path string) (Identity, error) {
			opened += len(strings.Split(path, "/zd")) - 1
			return m.ask(path)
		})
		begun := time.Now()
		results := n.settle(t.Context(), zvols...)
		missing := 0
		for dataset, r := range results {
			if errors.Is(r.Err, errNoDevice) {
				missing++
			} else if r.Err != nil || dataset != "tank/k8s/pvc-7" {
				t.Errorf("%s: %v", dataset, r.Err)
			}
		}
		looks := int(deviceWait/devicePoll) + 2
		if took := time.Since(begun); missing != count-1 || took > 2*deviceWait || opened > looks*(count+1) {
			t.Errorf("%d missing after %s and %d opens, want %d, a wait and %d looks", missing, took, opened, count-1, looks)
		}
	})
}

// importing is a pool whose zvols are there and whose devices are not. Of the first few that
// it is asked for it makes some.
type importing struct {
	*machine
	rows  string
	makes int
	mu    sync.Mutex
	asked int
}

func (i *importing) Run(_ context.Context, _ string, args ...string) ([]byte, error) {
	if args[0] == "list" {
		return []byte(i.rows), nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.asked++; i.asked <= i.makes {
		zd := fmt.Sprint("zd", i.asked)
		i.add(zd, args[len(args)-1], volsize, sectors)
		i.write("sys/dev/block/0:0/ext_range", "256\n")
	}
	return nil, nil
}

func (i *importing) look(path string) (Identity, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.ask(path)
}

// Hundreds that are late, or that nobody wants devices of, do not cost a transaction each; if
// the kernel owes them, all of them are made in one look.
func TestPool_ActivateAll_owed(t *testing.T) {
	const count = 100
	tests := map[string]struct{ makes, asked, missing int }{
		"none are owed":           {0, commands, count},
		"all are":                 {count, count, 0},
		"one of the first few is": {1, 2 * commands, count - 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				i := &importing{machine: newMachine(t), makes: tt.makes}
				owners := map[string]storage.Owner{}
				for n := range count {
					name := fmt.Sprint("pvc-", n)
					owners[name] = owner
					i.rows += strings.Replace(zvolRow, "pvc-1", name, 1)
				}
				p := New(i, i.root, Config{Pool: "tank", ParentDataset: "k8s", Ask: i.look})
				missing := 0
				for name, r := range p.ActivateAll(t.Context(), owners) {
					if errors.Is(r.Err, errNoDevice) {
						missing++
					} else if r.Err != nil {
						t.Errorf("%s: %v", name, r.Err)
					}
				}
				if missing != tt.missing || i.asked != tt.asked {
					t.Errorf("%d missing, %d asked for, want %d and %d", missing, i.asked, tt.missing, tt.asked)
				}
			})
		})
	}
}
