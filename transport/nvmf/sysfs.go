package nvmf

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pillar-csi/pillar/transport"
	"golang.org/x/sys/unix"
)

// controller is one NVMe/TCP controller of /sys/class/nvme.
type controller struct {
	name    string // "nvme0"
	state   string // new, live, resetting, connecting, deleting, "deleting (no IO)", dead
	nqn     string // not yet an NQN while the very first connect runs
	hostNQN string
	portal  transport.Portal
}

func (c controller) leaving() bool {
	return strings.HasPrefix(c.state, "deleting") || c.state == "dead"
}

// namespace is namespace 1 of a subsystem.
type namespace struct {
	dir          string // below sys
	name         string // "nvme0n1"
	uuid         string
	major, minor uint32
}

// controllers reads every NVMe/TCP controller. One that goes away meanwhile is left out.
func controllers(sys fs.FS) ([]controller, error) {
	dirs, err := list(sys, "class/nvme")
	if err != nil {
		return nil, err
	}
	var all []controller
	for _, name := range dirs {
		c, err := whole(sys, path.Join("class/nvme", name), func() (*controller, error) { return readController(sys, name) })
		if err != nil {
			return nil, fmt.Errorf("controller %s: %w", name, err)
		}
		if c != nil {
			all = append(all, *c)
		}
	}
	return all, nil
}

// readController answers nil for a controller of another transport, which has no address
// or host NQN to read.
func readController(sys fs.FS, name string) (*controller, error) {
	dir := path.Join("class/nvme", name)
	kind, err := read(sys, dir, "transport")
	if err != nil || kind != "tcp" {
		return nil, err
	}
	c := &controller{name: name}
	var address string
	for _, a := range []struct {
		attr string
		to   *string
	}{{"state", &c.state}, {"subsysnqn", &c.nqn}, {"hostnqn", &c.hostNQN}, {"address", &address}} {
		if *a.to, err = read(sys, dir, a.attr); err != nil {
			return nil, err
		}
	}
	c.portal, err = parseAddress(address)
	return c, err
}

// parseAddress reads "traddr=10.0.0.5,trsvcid=4420,src_addr=10.0.0.9". Fields it does not
// know are skipped; both it needs must be there.
func parseAddress(s string) (transport.Portal, error) {
	var p transport.Portal
	for field := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(field, "=")
		switch name {
		case "traddr":
			addr, err := netip.ParseAddr(value)
			if err != nil {
				return p, fmt.Errorf("address %q: %w", s, err)
			}
			p.Address = addr.String()
		case "trsvcid":
			port, err := strconv.ParseUint(value, 10, 16)
			if err != nil {
				return p, fmt.Errorf("address %q: %w", s, err)
			}
			p.Port = uint16(port)
		}
	}
	if p.Address == "" || p.Port == 0 {
		return p, fmt.Errorf("address %q: no portal", s)
	}
	return canonical(p), nil
}

// canonical is the portal as parseAddress would answer it.
func canonical(p transport.Portal) transport.Portal {
	if addr, err := netip.ParseAddr(p.Address); err == nil {
		p.Address = addr.Unmap().String()
	}
	return p
}

// diskName matches a namespace's disk. A path behind a multipath head, nvme0c1n1, is not
// one: it bypasses the head's queueing and vanishes with its connection.
var diskName = regexp.MustCompile(`^nvme[0-9]+n[0-9]+$`)

// pathName matches exactly those paths.
var pathName = regexp.MustCompile(`^nvme[0-9]+c[0-9]+n[0-9]+$`)

// findNamespace answers namespace 1 of subsystem nqn as the host hostNQN sees it, or nil if
// the kernel shows none. It looks below the subsystem, where native multipath puts the
// head, and below our controllers, where the device is without it.
func findNamespace(sys fs.FS, nqn, hostNQN string) (*namespace, error) {
	dirs, err := namespaceDirs(sys, nqn, hostNQN)
	if err != nil {
		return nil, err
	}
	var found *namespace
	for _, dir := range dirs {
		disks, err := listMatching(sys, dir, diskName)
		if err != nil {
			return nil, err
		}
		for _, disk := range disks {
			at := path.Join(dir, disk)
			ns, err := whole(sys, at, func() (*namespace, error) { return readNamespace(sys, at) })
			if err != nil {
				return nil, fmt.Errorf("namespace %s: %w", disk, err)
			}
			if ns == nil || found != nil && ns.name == found.name {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("%s and %s are both namespace 1 of %s", found.name, ns.name, nqn)
			}
			found = ns
		}
	}
	return found, nil
}

// namespaceDirs are the directories that can hold the device of nqn.
func namespaceDirs(sys fs.FS, nqn, hostNQN string) ([]string, error) {
	subsystems, err := list(sys, "class/nvme-subsystem")
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, name := range subsystems {
		dir := path.Join("class/nvme-subsystem", name)
		got, err := whole(sys, dir, func() (string, error) { return read(sys, dir, "subsysnqn") })
		if err != nil {
			return nil, fmt.Errorf("subsystem %s: %w", name, err)
		}
		if got == nqn {
			dirs = append(dirs, dir)
		}
	}
	all, err := controllers(sys)
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		if c.nqn == nqn && c.hostNQN == hostNQN {
			dirs = append(dirs, path.Join("class/nvme", c.name))
		}
	}
	return dirs, nil
}

// readNamespace answers nil unless the disk is namespace 1 and visible.
func readNamespace(sys fs.FS, dir string) (*namespace, error) {
	nsid, err := read(sys, dir, "nsid")
	if err != nil || nsid != "1" {
		return nil, err
	}
	hidden, err := read(sys, dir, "hidden")
	if err != nil || hidden == "1" {
		return nil, err
	}
	ns := &namespace{dir: dir, name: path.Base(dir)}
	if ns.uuid, err = read(sys, dir, "uuid"); err != nil {
		return nil, err
	}
	dev, err := read(sys, dir, "dev")
	if err != nil {
		return nil, err
	}
	ns.major, ns.minor, err = parseDev(dev)
	return ns, err
}

// parseDev reads the numbers of a device, "259:3".
func parseDev(s string) (major, minor uint32, err error) {
	a, b, ok := strings.Cut(s, ":")
	ma, errA := strconv.ParseUint(a, 10, 32)
	mi, errB := strconv.ParseUint(b, 10, 32)
	if !ok || errA != nil || errB != nil {
		return 0, 0, fmt.Errorf("device numbers %q", s)
	}
	return uint32(ma), uint32(mi), nil
}

// list answers the names in a directory of /sys/class. A class that is not there has no
// members, provided that there are classes at all: its module is not loaded.
func list(sys fs.FS, dir string) ([]string, error) {
	entries, err := fs.ReadDir(sys, dir)
	if errors.Is(err, fs.ErrNotExist) {
		_, err = fs.Stat(sys, path.Dir(dir))
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

// listMatching answers the names below a controller or subsystem; one that left has none.
func listMatching(sys fs.FS, dir string, form *regexp.Regexp) ([]string, error) {
	names, err := list(sys, dir)
	var match []string
	for _, n := range names {
		if form.MatchString(n) {
			match = append(match, n)
		}
	}
	return match, err
}

func read(sys fs.FS, dir, attr string) (string, error) {
	data, err := fs.ReadFile(sys, path.Join(dir, attr))
	return strings.TrimSpace(string(data)), err
}

// How long an object of sysfs may be without its attributes: they follow their directory
// within microseconds, or within tens of milliseconds on a busy machine (seen on Linux 6.12
// with two CPUs).
const (
	wholeTries = 50
	wholePause = 10 * time.Millisecond
)

// whole reads an object of sysfs, whose directory comes before its attributes and goes after
// them: what lacks one is read again. An object that is gone by now is the zero value.
func whole[T any](sys fs.FS, dir string, get func() (T, error)) (T, error) {
	var none T
	for try := 1; ; try++ {
		got, err := get()
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
			return got, err
		}
		if _, look := fs.Stat(sys, dir); errors.Is(look, fs.ErrNotExist) {
			return none, nil
		}
		if try == wholeTries {
			return none, err
		}
		time.Sleep(wholePause)
	}
}
