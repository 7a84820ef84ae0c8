// Package exports owns the moment at which a volume becomes reachable. Every way to get
// there leads through a Gate, and a Gate starts closed:
//
//	process start ── closed ── Restore(complete) ──> open
//	                   │ Export, Allow, Resync: "export restore pending"
//
// Why: nvmet answers a connect to a subsystem it does not have with "do not retry". A
// listener that comes up with part of its volumes therefore costs the rest their hosts.
// After a reboot the controller first sends every export there is to be, in one request;
// only when all are prepared are they linked to their port (block.md 4.9).
package exports

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// How long an export waits for its device (block.md U-19), how long one step of one volume
// may take, and how long a port stays closed for the sake of volumes that cannot be restored
// (U-50): hosts give a volume up after their own, longer, timeout.
const (
	deviceWait = 10 * time.Second
	stepWait   = 10 * time.Second
	portHold   = 60 * time.Second
)

// Target makes volumes of one protocol reachable.
type Target interface {
	// Available is nil if the kernel offers the protocol, else ErrUnsupported.
	Available(ctx context.Context) error
	// Export does all of it, and answers an equal export without a write.
	Export(ctx context.Context, e transport.Export, hold transport.Hold) (transport.Target, error)
	// Prepare does all but the last step; the volume does not become reachable.
	Prepare(ctx context.Context, e transport.Export, hold transport.Hold) error
	// Link is the last step.
	Link(ctx context.Context, e transport.Export) (transport.Target, error)
	// Quiet keeps hosts out of a portal until loud.
	Quiet(portal transport.Portal) (loud func())
	// Allow admits one initiator to the export of the device; without one it is ErrNotFound.
	Allow(ctx context.Context, volume, device, initiator string) error
	// ID answers the name of a volume's target, present or not. Two volumes may share it.
	ID(volume string) (string, error)
	// Live answers the portals at which anything is reachable.
	Live(ctx context.Context) ([]transport.Portal, error)
}

// Fence runs act under a volume's lock if the token admits it.
type Fence interface {
	// Check says whether the token would be admitted now. It takes no lock and writes nothing,
	// so that it decides nothing but what need not be tried.
	Check(volume string, tok fencing.Token, op fencing.Op) error
	Do(ctx context.Context, volume string, tok fencing.Token, op fencing.Op, act func(ctx context.Context) error) error
}

// Volumes finds devices.
type Volumes interface {
	// Path answers the path a volume's device has, or would have; ErrNotFound if its pool is
	// not configured, ErrInvalid if its name is none.
	Path(backend storage.BackendType, id storage.VolumeID) (string, error)
	// Devices activates the owners' volumes of one pool, by name, and answers for each its device
	// once it opens, waiting until the given time for what is missing. Many have the price of
	// one where the backend can.
	Devices(ctx context.Context, backend storage.BackendType, pool string, owners map[string]storage.Owner, until time.Time) map[string]Device
}

// Device is where a volume's device is, or why it cannot be used.
type Device struct {
	Path string
	ID   storage.DeviceID // of what was looked at
	Err  error
}

// Hold claims a device, and proves that it is the one that was looked at.
type Hold func(device string, looked storage.DeviceID) (release func() error, err error)

// Gate is the only way to an export. Its state is the process's: it starts closed, also
// when the kernel still has every export.
type Gate struct {
	fence   Fence
	volumes Volumes
	targets map[transport.Kind]Target
	hold    Hold
	now     func() time.Time

	restoring sync.Mutex // one complete request at a time: they set up ports together

	mu    sync.Mutex
	open  bool
	shut  map[port]bool   // the last complete request could not open them: the next one may
	first time.Time       // first complete request; zero: none yet
	hung  map[poolKey]int // how many looks for a pool's devices were given up and have not ended
}

// NewGate answers a closed gate.
func NewGate(fence Fence, volumes Volumes, targets map[transport.Kind]Target, hold Hold, now func() time.Time) *Gate {
	return &Gate{fence: fence, volumes: volumes, targets: targets, hold: hold, now: now, hung: map[poolKey]int{}}
}

// Check is nil when the gate is open, else ErrUnavailable.
func (g *Gate) Check() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		return fmt.Errorf("%w: export restore pending", agentrpc.ErrUnavailable)
	}
	return nil
}

var grant = fencing.Op{Class: fencing.Grant}

// Export makes one volume reachable. The device path is recomputed; ErrPrecondition if
// the caller named another (block.md B-236).
func (g *Gate) Export(ctx context.Context, it agentrpc.Item) (transport.Target, error) {
	if err := g.Check(); err != nil {
		return transport.Target{}, err
	}
	e := g.route(ctx, it)
	if err := g.atShut(e); err != nil {
		return transport.Target{}, err
	}
	var got transport.Target
	err := g.fence.Do(ctx, it.Export.Volume, it.Token, grant, func(ctx context.Context) error {
		owner := map[string]storage.Owner{e.id.Name: storage.Owner(e.Token.UID)}
		err := e.use(g.volumes.Devices(ctx, e.Backend, e.id.Pool, owner, g.now().Add(deviceWait)))
		if err == nil {
			got, err = e.target.Export(ctx, e.want, g.claim(e))
		}
		return err
	})
	if err != nil {
		return transport.Target{}, err
	}
	return got, nil
}

// Allow admits one initiator. With acl off nothing is written but the fencing mark.
// ErrInvalid: the initiator's name is none; ErrNotFound: there is no export.
func (g *Gate) Allow(ctx context.Context, it agentrpc.Item, initiator string) error {
	if err := g.Check(); err != nil {
		return err
	}
	e := g.route(ctx, it)
	if err := errors.Join(e.err, CheckInitiator(it.Export.Kind, initiator)); err != nil {
		return err
	}
	return g.fence.Do(ctx, it.Export.Volume, it.Token, grant, func(ctx context.Context) error {
		return e.target.Allow(ctx, it.Export.Volume, e.device, initiator)
	})
}

// Resync brings single exports to their desired state.
func (g *Gate) Resync(ctx context.Context, items []agentrpc.Item) ([]agentrpc.ItemResult, error) {
	if err := g.Check(); err != nil {
		return nil, err
	}
	entries := g.routeAll(ctx, items)
	for _, e := range entries {
		e.err = g.atShut(e)
	}
	g.findDevices(ctx, entries)
	g.phase(ctx, entries, inOrder, func(ctx context.Context, e *entry) error {
		_, err := e.target.Export(ctx, e.want, g.claim(e))
		return err
	})
	return results(entries), ctx.Err()
}

// entry is an item on its way through the phases. err takes it out of the later ones.
type entry struct {
	agentrpc.Item
	id     storage.VolumeID
	target Target
	name   string           // of the target
	device string           // the path the layout gives the volume
	want   transport.Export // with the device as the agent finds it
	looked storage.DeviceID // which it was then
	err    error
}

func newEntry(it agentrpc.Item) *entry {
	if it.Export.Portal.Port == 0 {
		it.Export.Portal.Port = it.Export.Kind.DefaultPort()
	}
	return &entry{Item: it, want: it.Export}
}

// CheckInitiator is ErrInvalid unless the name is one of the protocol's. A name is not
// used as a path component before this.
func CheckInitiator(kind transport.Kind, name string) error {
	if kind != transport.NVMeTCP {
		return fmt.Errorf("%w: protocol %q", transport.ErrUnsupported, kind)
	}
	_, err := transport.ParseNQN(name)
	return err
}

// route finds an item's pool and target and parses every name; nothing is done yet.
func (g *Gate) route(ctx context.Context, it agentrpc.Item) *entry {
	return g.routeAll(ctx, []agentrpc.Item{it})[0]
}

// routeAll is route for every item. A target is asked once whether the kernel offers it.
func (g *Gate) routeAll(ctx context.Context, items []agentrpc.Item) []*entry {
	offers := map[transport.Kind]error{}
	for kind, target := range g.targets {
		offers[kind] = target.Available(ctx)
	}
	entries := make([]*entry, len(items))
	for i, it := range items {
		e := newEntry(it)
		if e.err = g.find(e); e.err == nil {
			e.err = offers[e.Export.Kind]
		}
		entries[i] = e
	}
	return entries
}

func (g *Gate) find(e *entry) (err error) {
	if e.id, err = storage.ParseVolumeID(e.Export.Volume); err != nil {
		return err
	}
	target, ok := g.targets[e.Export.Kind]
	switch {
	case e.Export.Kind == "":
		return fmt.Errorf("%w: no protocol", transport.ErrInvalid)
	case !ok:
		return fmt.Errorf("%w: protocol %q", transport.ErrUnsupported, e.Export.Kind)
	}
	e.target = target
	if e.device, err = g.volumes.Path(e.Backend, e.id); err != nil {
		return err
	}
	if e.name, err = target.ID(e.Export.Volume); err != nil {
		return err
	}
	for _, name := range e.Export.Initiators {
		if err := CheckInitiator(e.Export.Kind, name); err != nil {
			return err
		}
	}
	return nil
}

// use takes the device that was found; one the caller named must be the same.
func (e *entry) use(found map[string]Device) error {
	device, ok := found[e.id.Name]
	switch asked := e.Export.DevicePath; {
	case !ok:
		return fmt.Errorf("pool %s says nothing about %s", e.id.Pool, e.id)
	case device.Err != nil:
		return device.Err
	case asked != "" && asked != device.Path:
		return fmt.Errorf("%w: request names device %s, the volume's is %s", transport.ErrPrecondition, asked, device.Path)
	}
	e.want.DevicePath, e.looked = device.Path, device.ID
	return nil
}

// claim claims the entry's device as it was looked at: until then the path may have come to
// lead to another (block.md B-224).
func (g *Gate) claim(e *entry) transport.Hold {
	return func(device string) (release func() error, err error) { return g.hold(device, e.looked) }
}
