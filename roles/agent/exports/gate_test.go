package exports_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agent/exports"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// node is a storage node in memory: devices that are there or fail, and what a target was
// told to do.
type node struct {
	t       *testing.T
	mu      sync.Mutex // of linked and trace: pools are restored at the same time
	clock   time.Time
	fail    map[string]error // by volume: finding its device
	held    map[string]bool  // by device
	refuse  map[string]error // by volume: preparing it
	linked  map[string]transport.Portal
	trace   []string
	advance func(volume string)      // called after a volume was prepared
	absent  error                    // of the kernel's target
	unbound map[uint16]bool          // TCP ports that cannot listen
	hang    map[string]chan struct{} // Prepare of a volume waits for it
	stuck   map[string]chan struct{} // finding the devices of a pool waits for it
	store   *fencing.Store
	gate    *exports.Gate
}

// newNode answers a node whose volumes are prepared one after the other.
func newNode(t *testing.T) *node {
	processors(t, 1)
	store, err := fencing.Open(t.TempDir() + "/generations")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, store: store, clock: time.Unix(1000, 0),
		fail: map[string]error{}, held: map[string]bool{}, refuse: map[string]error{}, linked: map[string]transport.Portal{}}
	n.gate = exports.NewGate(fence{store}, n, map[transport.Kind]exports.Target{transport.NVMeTCP: n}, n.hold, func() time.Time { return n.clock })
	return n
}

// processors pretends that the machine has so many.
func processors(t *testing.T, n int) {
	before := runtime.GOMAXPROCS(n)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

type fence struct{ *fencing.Store }

func (f fence) Do(ctx context.Context, volume string, tok fencing.Token, op fencing.Op, act func(context.Context) error) error {
	_, err := f.Store.Do(ctx, volume, tok, op, act)
	return err
}

func (n *node) Path(_ storage.BackendType, id storage.VolumeID) (string, error) {
	if id.Pool == "unknown" {
		return "", fmt.Errorf("pool %s: %w", id.Pool, storage.ErrNotFound)
	}
	return "/dev/" + id.String(), nil
}

func (n *node) Devices(_ context.Context, b storage.BackendType, pool string, owners map[string]storage.Owner, until time.Time) map[string]exports.Device {
	if limit := n.clock.Add(10 * time.Second); !until.Equal(limit) {
		n.t.Errorf("Devices of %s may wait until %v, want %v", pool, until, limit)
	}
	if let, ok := n.stuck[pool]; ok {
		<-let
	}
	found := map[string]exports.Device{}
	for name := range owners {
		id := storage.VolumeID{Pool: pool, Name: name}
		path, err := n.Path(b, id)
		found[name] = exports.Device{Path: path, ID: lookedAt(path), Err: errors.Join(n.fail[id.String()], err)}
	}
	return found
}

// lookedAt answers the device that a path leads to.
func lookedAt(path string) storage.DeviceID { return storage.DeviceID{Sequence: uint64(1 + len(path))} }

func (n *node) hold(device string, looked storage.DeviceID) (func() error, error) {
	if looked != lookedAt(device) {
		n.t.Errorf("hold of %s as %v, want it held to what was looked at, %v", device, looked, lookedAt(device))
	}
	if n.held[device] {
		return nil, fmt.Errorf("%s: %w", device, storage.ErrBusy)
	}
	return func() error { return nil }, nil
}

func (n *node) Available(context.Context) error { return n.absent }

func (n *node) Prepare(_ context.Context, e transport.Export, hold transport.Hold) error {
	if let, ok := n.hang[e.Volume]; ok {
		<-let
	}
	if err := n.refuse[e.Volume]; err != nil {
		return err
	}
	if _, err := hold(e.DevicePath); err != nil {
		return err
	}
	line := "prepare " + e.Volume
	if e.MaxDataTransferSize != nil {
		line += fmt.Sprintf(" mdts=%d", *e.MaxDataTransferSize)
	}
	n.note(line)
	if n.advance != nil {
		n.advance(e.Volume)
	}
	return nil
}

func (n *node) Link(_ context.Context, e transport.Export) (transport.Target, error) {
	if n.unbound[e.Portal.Port] {
		return transport.Target{}, fmt.Errorf("%w: not an address of this machine", transport.ErrPrecondition)
	}
	n.note("link " + e.Volume)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linked[e.Volume] = e.Portal
	return transport.Target{ID: e.Volume, Portal: e.Portal}, nil
}

func (n *node) Quiet(p transport.Portal) (loud func()) {
	n.note(fmt.Sprintf("quiet %d", p.Port))
	return func() { n.note(fmt.Sprintf("loud %d", p.Port)) }
}

func (n *node) Export(ctx context.Context, e transport.Export, hold transport.Hold) (transport.Target, error) {
	if err := n.Prepare(ctx, e, hold); err != nil {
		return transport.Target{}, err
	}
	return n.Link(ctx, e)
}

func (n *node) Allow(_ context.Context, volume, device, initiator string) error {
	n.note(strings.Join([]string{"allow", volume, device, initiator}, " "))
	return nil
}

func (n *node) note(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.trace = append(n.trace, line)
}

func (n *node) ID(volume string) (string, error) {
	return strings.ReplaceAll(volume, "/", "."), nil
}

func (n *node) Live(context.Context) ([]transport.Portal, error) {
	return slices.Collect(maps.Values(n.linked)), nil
}

func item(volume string, generation int64) agentrpc.Item {
	return agentrpc.Item{
		Token: fencing.Token{UID: "uid-" + volume, Generation: generation}, Backend: storage.LVMLV, Ready: true,
		Export: transport.Export{Kind: transport.NVMeTCP, Volume: volume, Portal: transport.Portal{Address: "10.0.0.1"}},
	}
}

// restore sends the complete request and answers what failed, by volume.
func (n *node) restore(items ...agentrpc.Item) map[string]error {
	n.t.Helper()
	results, err := n.gate.Restore(n.t.Context(), items)
	if err != nil || len(results) != len(items) {
		n.t.Fatalf("Restore = %d results, %v, want %d", len(results), err, len(items))
	}
	failed := map[string]error{}
	for _, r := range results {
		if r.Err != nil {
			failed[r.Volume] = r.Err
		}
	}
	return failed
}

func (n *node) wantTrace(want ...string) {
	n.t.Helper()
	if diff := cmp.Diff(want, n.trace); diff != "" {
		n.t.Errorf("the target was told otherwise (-want +got):\n%s", diff)
	}
	n.trace = nil
}

func (n *node) wantOpen(want bool) {
	n.t.Helper()
	err := n.gate.Check()
	if (err == nil) != want {
		n.t.Errorf("Check() = %v, want open %v", err, want)
	}
	if err != nil && (!errors.Is(err, agentrpc.ErrUnavailable) || !strings.Contains(err.Error(), "export restore pending")) {
		n.t.Errorf("Check() = %v, want ErrUnavailable with the stable fragment", err)
	}
}

func TestGate_ClosedHoldsBack(t *testing.T) {
	n := newNode(t)
	it := item("vg0/a", 1)
	_, export := n.gate.Export(t.Context(), it)
	_, resync := n.gate.Resync(t.Context(), []agentrpc.Item{it})
	allow := n.gate.Allow(t.Context(), it, "nqn.2014-08.org.nvmexpress:uuid:1")
	for name, err := range map[string]error{"Export": export, "Resync": resync, "Allow": allow} {
		if !errors.Is(err, agentrpc.ErrUnavailable) {
			t.Errorf("%s = %v, want ErrUnavailable", name, err)
		}
	}
	n.wantTrace()
	if mark, err := n.store.Mark("vg0/a"); mark != nil || err != nil {
		t.Errorf("mark = %v, %v, want none", mark, err)
	}
}

func TestGate_Restore(t *testing.T) {
	n := newNode(t)
	partial, sized := item("vg0/partial", 2), item("vg0/sized", 1)
	partial.Ready = false
	size := int32(16384)
	sized.Export.InCapsuleDataSize = &size
	failed := n.restore(partial, item("vg0/a", 1), sized)
	if len(failed) > 0 {
		t.Errorf("failed = %v, want none", failed)
	}
	n.wantTrace("prepare vg0/sized", "prepare vg0/a", "prepare vg0/partial",
		"quiet 4420", "link vg0/sized", "link vg0/a", "link vg0/partial", "loud 4420")
	n.wantOpen(true)
	n.restore() // repeated, and empty
	n.wantOpen(true)
}

func TestGate_RestoreOfNothingOpens(t *testing.T) {
	n := newNode(t)
	n.restore()
	n.wantOpen(true)
}

func TestGate_RestoreHoldsAnIdlePort(t *testing.T) {
	missing := fmt.Errorf("%w: device is missing", storage.ErrPrecondition)
	n := newNode(t)
	n.fail["vg0/a"] = missing
	other := item("vg0/c", 1)
	other.Export.Portal.Port = 4421
	failed := n.restore(item("vg0/a", 1), item("vg0/b", 1), other)
	n.wantTrace("prepare vg0/b", "prepare vg0/c", "quiet 4421", "link vg0/c", "loud 4421")
	n.wantOpen(false)
	if !errors.Is(failed["vg0/a"], storage.ErrPrecondition) || !errors.Is(failed["vg0/b"], agentrpc.ErrUnavailable) || failed["vg0/c"] != nil {
		t.Errorf("failed = %v, want a missing, b waiting, c served", failed)
	}

	n.clock = n.clock.Add(59 * time.Second)
	n.restore(item("vg0/a", 1), item("vg0/b", 1), other)
	n.wantOpen(false)
	n.trace = nil

	n.clock = n.clock.Add(time.Second) // one broken volume cannot keep the node down
	failed = n.restore(item("vg0/a", 1), item("vg0/b", 1), other)
	n.wantTrace("prepare vg0/b", "prepare vg0/c", "quiet 4420", "link vg0/b", "link vg0/c", "loud 4420")
	n.wantOpen(true)
	if len(failed) != 1 {
		t.Errorf("failed = %v, want vg0/a alone", failed)
	}
}

// N-12: an interface that comes up late. Until its port listens, nothing but the complete
// request opens it: the first export alone would cost the others their hosts.
func TestGate_RestoreOfAPortThatCannotListen(t *testing.T) {
	n := newNode(t)
	n.unbound = map[uint16]bool{4420: true}
	other := item("vg0/c", 1)
	other.Export.Portal.Port = 4421
	items := []agentrpc.Item{item("vg0/a", 1), item("vg0/b", 1), other}
	if failed := n.restore(items...); len(failed) != 2 {
		t.Errorf("failed = %v, want a and b", failed)
	}
	n.wantOpen(false)

	n.clock = n.clock.Add(time.Minute) // the node is served, that port still is not
	n.restore(items...)
	n.wantOpen(true)
	n.unbound, n.trace = nil, nil
	_, export := n.gate.Export(t.Context(), item("vg0/a", 1))
	results, err := n.gate.Resync(t.Context(), []agentrpc.Item{item("vg0/b", 1), other})
	if err != nil || !errors.Is(export, agentrpc.ErrUnavailable) || !errors.Is(results[0].Err, agentrpc.ErrUnavailable) || results[1].Err != nil {
		t.Errorf("Export = %v, Resync = %v, %v, want a and b to wait for the complete request, c served", export, results, err)
	}
	n.wantTrace("prepare vg0/c", "link vg0/c")
	if failed := n.restore(items...); len(failed) > 0 {
		t.Errorf("failed = %v, want none", failed)
	}
	if _, err := n.gate.Export(t.Context(), item("vg0/a", 1)); err != nil {
		t.Errorf("Export = %v", err)
	}
}

func TestGate_RestoreWaitsForAPoolThatIsNotConfigured(t *testing.T) {
	n := newNode(t)
	failed := n.restore(item("unknown/a", 1), item("vg0/b", 1))
	if !errors.Is(failed["unknown/a"], storage.ErrNotFound) || !errors.Is(failed["vg0/b"], agentrpc.ErrUnavailable) {
		t.Errorf("failed = %v, want a's pool not found and b waiting", failed)
	}
	n.wantOpen(false)
}

func TestGate_RestoreDoesNotWait(t *testing.T) {
	tests := map[string]func(n *node){
		"for a rejected token": func(n *node) {
			err := fence{n.store}.Do(n.t.Context(), "vg0/a", fencing.Token{UID: "uid-vg0/a", Generation: 9},
				fencing.Op{Class: fencing.Revoke}, func(context.Context) error { return nil })
			if err != nil {
				n.t.Fatal(err)
			}
		},
		"for a device in local use": func(n *node) { n.held["/dev/vg0/a"] = true },
		"at a port that serves already": func(n *node) {
			n.linked["vg0/z"] = transport.Portal{Address: "10.0.0.1", Port: 4420}
			n.refuse["vg0/a"] = errors.New("no")
		},
		"for a revoke between the two phases": func(n *node) { n.advance = n.revokeAfter("vg0/a") },
	}
	for name, setUp := range tests {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			setUp(n)
			failed := n.restore(item("vg0/a", 1), item("vg0/b", 1))
			if len(failed) != 1 || failed["vg0/a"] == nil {
				t.Errorf("failed = %v, want vg0/a alone", failed)
			}
			if slices.Contains(n.trace, "link vg0/a") || !slices.Contains(n.trace, "link vg0/b") {
				t.Errorf("trace = %v, want b linked and a not", n.trace)
			}
			n.wantOpen(true)
		})
	}
}

// revokeAfter advances the volume's mark once it was prepared.
func (n *node) revokeAfter(victim string) func(string) {
	return func(volume string) {
		if volume != "vg0/b" {
			return // a is unlocked when b is prepared
		}
		err := fence{n.store}.Do(n.t.Context(), victim, fencing.Token{UID: "uid-" + victim, Generation: 9},
			fencing.Op{Class: fencing.Revoke}, func(context.Context) error { return nil })
		if err != nil {
			n.t.Error(err)
		}
	}
}

func TestGate_RestoreRefusesNamesThatCollide(t *testing.T) {
	n := newNode(t)
	failed := n.restore(item("a/b.c", 1), item("a.b/c", 1))
	for _, volume := range []string{"a/b.c", "a.b/c"} {
		if !errors.Is(failed[volume], transport.ErrPrecondition) {
			t.Errorf("%s: %v, want ErrPrecondition", volume, failed[volume])
		}
	}
	n.wantTrace()
}

func TestGate_RestoreCancelledStaysClosed(t *testing.T) {
	n := newNode(t)
	ctx, cancel := context.WithCancel(t.Context())
	n.advance = func(string) { cancel() }
	if _, err := n.gate.Restore(ctx, []agentrpc.Item{item("vg0/a", 1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("Restore = %v, want canceled", err)
	}
	n.wantOpen(false)
}

// N-12: a request that breaks off opens no port for the part it had prepared, also when
// the time to hold ports is over.
func TestGate_RestoreCancelledLinksNothing(t *testing.T) {
	n := newNode(t)
	n.restore(item("vg0/a", 1), item("unknown/b", 1))
	n.wantOpen(false)
	n.clock = n.clock.Add(time.Hour)
	n.trace = nil
	ctx, cancel := context.WithCancel(t.Context())
	n.advance = func(string) { cancel() }
	items := []agentrpc.Item{item("vg0/a", 1), item("vg0/b", 1), item("vg0/c", 1), item("vg0/d", 1)}
	if _, err := n.gate.Restore(ctx, items); !errors.Is(err, context.Canceled) {
		t.Errorf("Restore = %v, want canceled", err)
	}
	n.wantTrace("prepare vg0/a", "quiet 4420", "loud 4420")
	n.wantOpen(false)
}

// D-17: a volume that hangs in the kernel cannot keep the node down for good.
func TestGate_RestoreWithAHangingVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		let := make(chan struct{})
		n.hang = map[string]chan struct{}{"vg0/a": let}
		items := []agentrpc.Item{item("vg0/a", 1), item("vg0/b", 1)}
		for range 2 { // the second finds the lock taken
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if _, err := n.gate.Restore(ctx, items); err != nil {
				t.Fatalf("Restore beside a hanging volume = %v, want results", err)
			}
			n.clock = n.clock.Add(time.Minute)
		}
		if _, linked := n.linked["vg0/b"]; !linked {
			t.Errorf("linked = %v, want vg0/b", n.linked)
		}
		n.wantOpen(true)
		close(let)
	})
}

func TestGate_RestoreSharesTheSmallestTransferSize(t *testing.T) {
	n := newNode(t)
	a, b, c := item("vg0/a", 1), item("vg0/b", 1), item("vg0/c", 1)
	small, large := int32(8192), int32(1<<20)
	a.Export.MaxDataTransferSize, b.Export.MaxDataTransferSize = &large, &small
	n.restore(a, b, c)
	n.wantTrace("prepare vg0/a mdts=8192", "prepare vg0/b mdts=8192", "prepare vg0/c mdts=8192",
		"quiet 4420", "link vg0/a", "link vg0/b", "link vg0/c", "loud 4420")
}

func TestGate_RestoreWithoutTheProtocol(t *testing.T) {
	n := newNode(t)
	n.absent = fmt.Errorf("%w: nvmet is not loaded", transport.ErrUnsupported)
	failed := n.restore(item("vg0/a", 1))
	if !errors.Is(failed["vg0/a"], transport.ErrUnsupported) {
		t.Errorf("failed = %v, want ErrUnsupported", failed)
	}
	n.wantTrace()
	n.wantOpen(false)
}

func TestGate_Open(t *testing.T) {
	n := newNode(t)
	n.restore()
	got, err := n.gate.Export(t.Context(), item("vg0/a", 1))
	if err != nil || got.Portal != (transport.Portal{Address: "10.0.0.1", Port: 4420}) {
		t.Errorf("Export = %v, %v, want the default port", got, err)
	}
	host := "nqn.2014-08.org.nvmexpress:uuid:1"
	if err := n.gate.Allow(t.Context(), item("vg0/a", 2), host); err != nil {
		t.Errorf("Allow = %v, want success", err)
	}
	n.wantTrace("prepare vg0/a", "link vg0/a", "allow vg0/a /dev/vg0/a "+host)
	results, err := n.gate.Resync(t.Context(), []agentrpc.Item{item("vg0/a", 1), item("vg0/b", 1)})
	if err != nil || len(results) != 2 || !errors.Is(results[0].Err, fencing.ErrStale) || results[1].Err != nil {
		t.Errorf("Resync = %v, %v, want a stale and b served", results, err)
	}
	n.wantTrace("prepare vg0/b", "link vg0/b")
}

func TestGate_RefusesBeforeAnyEffect(t *testing.T) {
	n := newNode(t)
	n.restore()
	tests := map[string]struct {
		change func(*agentrpc.Item)
		want   error
	}{
		"a pool that is not configured": {func(it *agentrpc.Item) { it.Export.Volume = "unknown/a" }, storage.ErrNotFound},
		"a volume ID without a pool":    {func(it *agentrpc.Item) { it.Export.Volume = "a" }, storage.ErrInvalid},
		"another protocol":              {func(it *agentrpc.Item) { it.Export.Kind = transport.ISCSI }, transport.ErrUnsupported},
		"an initiator that is no name":  {func(it *agentrpc.Item) { it.Export.Initiators = []string{"../x"} }, transport.ErrInvalid},
		"no token":                      {func(it *agentrpc.Item) { it.Token = fencing.Token{} }, fencing.ErrStale},
		"another device":                {func(it *agentrpc.Item) { it.Export.DevicePath = "/dev/sda" }, transport.ErrPrecondition},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			it := item("vg0/a", 1)
			tt.change(&it)
			if _, err := n.gate.Export(t.Context(), it); !errors.Is(err, tt.want) {
				t.Errorf("Export = %v, want %v", err, tt.want)
			}
			n.wantTrace()
		})
	}
	if err := n.gate.Allow(t.Context(), item("vg0/a", 1), "../x"); !errors.Is(err, transport.ErrInvalid) {
		t.Errorf("Allow(../x) = %v, want ErrInvalid", err)
	}
}
