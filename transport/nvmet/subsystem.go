package nvmet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"golang.org/x/sys/unix"
)

// subsystem is a subsystem as the kernel has it.
type subsystem struct {
	dir     configfs.Dir
	number  func(path string) (uint64, error)
	anyHost bool
	hosts   []string // names in allowed_hosts

	namespace bool   // namespaces/1 exists; without it the fields below are zero
	device    string // device_path; empty while unset
	enabled   bool
	id        Identity // UUID and NGUID as shown, serial without padding
}

func (s *subsystem) ns() configfs.Dir { return s.dir.Sub("namespaces", "1") }

// looked repeats a look at an object that another call may be taking down: namespace and
// subsystem go one after the other, and the last look finds that it is gone.
func looked[T any](look func() (T, error)) (found T, err error) {
	for range 3 {
		if found, err = look(); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return found, err
}

// subsystem reads the subsystem nqn, or answers nil if the kernel has none of that name.
func (t *Target) subsystem(nqn string) (*subsystem, error) {
	return looked(func() (*subsystem, error) { return t.readSubsystem(nqn) })
}

func (t *Target) readSubsystem(nqn string) (*subsystem, error) {
	s := &subsystem{dir: t.subsystemDir(nqn), number: t.number}
	if ok, err := s.dir.Exists(); !ok || err != nil {
		return nil, err
	}
	anyHost, err := s.dir.Read("attr_allow_any_host")
	if err != nil {
		return nil, err
	}
	s.anyHost = anyHost == "1"
	if s.hosts, err = s.dir.Sub("allowed_hosts").List(); err != nil {
		return nil, err
	}
	if s.id.Serial, err = s.dir.Read("attr_serial"); err != nil {
		return nil, err
	}
	s.id.Serial = strings.TrimRight(s.id.Serial, " ")
	if s.namespace, err = s.ns().Exists(); err != nil || !s.namespace {
		return s, err
	}
	return s, s.readNamespace()
}

func (s *subsystem) readNamespace() error {
	var enable string
	for attr, to := range map[string]*string{
		"device_path": &s.device, "device_uuid": &s.id.UUID, "device_nguid": &s.id.NGUID, "enable": &enable,
	} {
		value, err := s.ns().Read(attr)
		if err != nil {
			return err
		}
		*to = value
	}
	s.enabled = enable == "1"
	if s.device == "(null)" { // how the kernel prints a path that was never written
		s.device = ""
	}
	return nil
}

// backs says whether the subsystem's device is the given one: two volumes can derive the
// same NQN (block.md B-23). A subsystem without a device belongs to nobody yet. If the
// paths differ and one cannot be looked at, nobody knows, which is an error.
func (s *subsystem) backs(device string) (bool, error) {
	if s.device == "" || s.device == device {
		return true, nil
	}
	a, err := s.number(s.device)
	if err != nil {
		return false, err
	}
	b, err := s.number(device)
	return err == nil && a == b, err
}

// deviceNumber answers the number of the device at path. A plain file, which nvmet serves
// too, has number 0, and no device has.
func deviceNumber(path string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", path, err)
	}
	return st.Rdev, nil
}

// number is deviceNumber, or what stands for it.
func (t *Target) number(path string) (uint64, error) {
	n, err := t.cfg.Number(path)
	if err != nil {
		return 0, fmt.Errorf("compare backing devices: %w", err)
	}
	return n, nil
}

// otherDevice is the refusal to touch an export of another device.
func (s *subsystem) otherDevice(device string) error {
	return fmt.Errorf("%w: subsystem %s already exports %s, not %s", transport.ErrPrecondition, s.dir.Base(), s.device, device)
}

// busyWait bounds how long an object may stay busy before the call gives up (U-22).
const busyWait = 5 * time.Second

// settle repeats f while the kernel answers EBUSY, or EEXIST for a name whose former
// object has not quite gone, for at most busyWait. Then it is transport.ErrPrecondition.
func settle(ctx context.Context, f func() error) error {
	err := f()
	if !busy(err) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, busyWait)
	defer cancel()
	for ; busy(err); err = f() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", transport.ErrPrecondition, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return err
}

func busy(err error) bool { return errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EEXIST) }

// port is a port as the kernel has it.
type port struct {
	dir     configfs.Dir
	id      int
	trtype  string
	portal  transport.Portal // as far as set
	traddr  string
	trsvcid string
	links   []string // NQNs of the subsystems it serves; any: the port is live
}

// portList reads every port, ours or not.
func (t *Target) portList() ([]port, error) {
	ports := t.nvmet.Sub("ports")
	names, err := ports.List()
	if err != nil {
		return nil, err
	}
	var all []port
	for _, name := range names {
		p, err := readPort(ports.Sub(name))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

func readPort(dir configfs.Dir) (p port, err error) {
	p.dir = dir
	if p.id, err = strconv.Atoi(dir.Base()); err != nil {
		return p, fmt.Errorf("port %s: %w", dir.Name(), err)
	}
	if p.trtype, err = dir.Read("addr_trtype"); err != nil {
		return p, err
	}
	if p.traddr, err = dir.Read("addr_traddr"); err != nil {
		return p, err
	}
	if p.trsvcid, err = dir.Read("addr_trsvcid"); err != nil {
		return p, err
	}
	if n, err := strconv.ParseUint(p.trsvcid, 10, 16); err == nil {
		p.portal = transport.Portal{Address: p.traddr, Port: uint16(n)}
	}
	p.links, err = dir.Sub("subsystems").List()
	return p, err
}
