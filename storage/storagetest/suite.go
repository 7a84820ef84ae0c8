// Package storagetest is the contract of storage.Backend as a test suite, and an in-memory
// backend that passes it. Every backend runs the suite, on the real tool in a lab guest.
package storagetest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/storage"
)

// Device is an open volume.
type Device interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	io.Closer
}

// Fixture is a backend on an empty pool, with what the suite needs to look behind it.
type Fixture struct {
	Backend storage.Backend
	Pool    string // name
	Unit    int64  // bytes; sizes are rounded up to a multiple
	// Slack is how many bytes a volume may take of the pool beyond its size, and a pool may
	// use for itself.
	Slack int64
	// Overcommits: a volume's size is a promise, and only what is written to it is taken.
	Overcommits bool
	Names       []string
	// Spec asks for a volume of the backend's kind, without an owner.
	Spec func(name string, bytes int64) storage.Spec
	// Open opens a volume's device for reading and writing.
	Open func(path string) (Device, error)
	// Hold keeps a volume in use, as a mount or an export does.
	Hold func(t testing.TB, path string) (release func())
	// Stranger makes an object of the backend's kind as the machine's owner would, by hand.
	Stranger func(t testing.TB, name string, bytes int64)
	// Reboot takes every volume's device away, as a restart of the machine does.
	Reboot func(t testing.TB)
}

// Run holds a backend to the contract. fixture is called once per case.
func Run(t *testing.T, fixture func(t testing.TB) Fixture) {
	cases := map[string]func(t *testing.T, f Fixture){
		"create answers what inspect answers":             testCreate,
		"create again answers the same volume":            testCreateAgain,
		"create again of another size is refused":         testCreateOther,
		"a size is rounded up to the unit":                testRounding,
		"a bad request changes nothing":                   testInvalid,
		"a full pool refuses and keeps nothing":           testNoSpace,
		"an absent volume is ErrNotFound, and deleted":    testAbsent,
		"delete removes exactly this volume":              testDelete,
		"delete of a volume in use is refused":            testDeleteBusy,
		"expand grows a volume in use, with its data":     testExpand,
		"expand to the size it has is success":            testExpandAgain,
		"expand never shrinks":                            testExpandShrinks,
		"expand without the space changes nothing":        testExpandNoSpace,
		"expand of nothing, or to nothing, is refused":    testExpandRefused,
		"a new volume shows nothing of an earlier one":    testBlank,
		"create again leaves data alone":                  testKeepsData,
		"list answers every volume":                       testList,
		"pool counts what volumes take":                   testPool,
		"after a reboot activate brings the data back":    testReboot,
		"after a reboot all are activated, or told apart": testActivateAll,
		"what another made is neither used nor removed":   testForeign,
		"an ended context is an error and never absent":   testContext,
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) { test(t, fixture(t)) })
	}
}

// The lifecycle that the volumes of a case are made for, and another one.
const (
	owner = storage.Owner("0b1e0c62-3a5e-4f62-9d0a-3f1f0f8c1a01")
	other = storage.Owner("0b1e0c62-3a5e-4f62-9d0a-3f1f0f8c1a02")
)

// ask is Spec for the owner.
func (f Fixture) ask(name string, bytes int64) storage.Spec {
	s := f.Spec(name, bytes)
	s.Owner = owner
	return s
}

func create(t *testing.T, f Fixture, name string, bytes int64) storage.Volume {
	t.Helper()
	v, err := f.Backend.Create(t.Context(), f.ask(name, bytes))
	if err != nil {
		t.Fatalf("Create(%s, %d) = %v", name, bytes, err)
	}
	return v
}

func wantAbsent(t *testing.T, f Fixture, name string) {
	t.Helper()
	if v, err := f.Backend.Inspect(t.Context(), name); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Inspect(%s) = %+v, %v, want ErrNotFound", name, v, err)
	}
}

func wantVolume(t *testing.T, f Fixture, want storage.Volume) {
	t.Helper()
	got, err := f.Backend.Inspect(t.Context(), want.ID.Name)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Inspect(%s) = %v (-want +got):\n%s", want.ID.Name, err, diff)
	}
}

func testCreate(t *testing.T, f Fixture) {
	got := create(t, f, "pvc-1", 4*f.Unit)
	want := storage.Volume{ID: storage.VolumeID{Pool: f.Pool, Name: "pvc-1"}, Owner: owner, Bytes: 4 * f.Unit, DevicePath: got.DevicePath}
	if diff := cmp.Diff(want, got); diff != "" || got.DevicePath == "" {
		t.Errorf("Create (-want +got):\n%s", diff)
	}
	wantVolume(t, f, want)
	for _, name := range f.Names { // legal, and of the kind a sloppy backend trips over
		wantVolume(t, f, create(t, f, name, f.Unit))
	}
}

func testCreateAgain(t *testing.T, f Fixture) {
	first := create(t, f, "pvc-1", 4*f.Unit)
	if again := create(t, f, "pvc-1", 4*f.Unit); again != first {
		t.Errorf("Create again = %+v, want %+v", again, first)
	}
	if again := create(t, f, "pvc-1", 4*f.Unit-1); again != first { // rounds to the same
		t.Errorf("Create again, one byte less = %+v, want %+v", again, first)
	}
}

func testCreateOther(t *testing.T, f Fixture) {
	first := create(t, f, "pvc-1", 4*f.Unit)
	for _, bytes := range []int64{3 * f.Unit, 4*f.Unit + 1} {
		if v, err := f.Backend.Create(t.Context(), f.ask("pvc-1", bytes)); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("Create(%d) over %d bytes = %+v, %v, want ErrConflict", bytes, first.Bytes, v, err)
		}
	}
	wantVolume(t, f, first)
}

func testRounding(t *testing.T, f Fixture) {
	for name, bytes := range map[string]int64{"one": 1, "less": 2*f.Unit - 1, "equal": 2 * f.Unit, "more": f.Unit + 1} {
		want := (bytes + f.Unit - 1) / f.Unit * f.Unit
		if v := create(t, f, "pvc-"+name, bytes); v.Bytes != want {
			t.Errorf("Create(%d bytes) made %d, want %d", bytes, v.Bytes, want)
		}
	}
}

func testInvalid(t *testing.T, f Fixture) {
	otherPool := f.ask("pvc-1", f.Unit)
	otherPool.ID.Pool = "another"
	noOwner, oddOwner := f.ask("pvc-1", f.Unit), f.ask("pvc-1", f.Unit)
	noOwner.Owner, oddOwner.Owner = "", "a\nb"
	specs := map[string]storage.Spec{
		"no name":       f.ask("", f.Unit),
		"option":        f.ask("-f", f.Unit),
		"dot":           f.ask(".", f.Unit),
		"dots":          f.ask("..", f.Unit),
		"slash":         f.ask("a/b", f.Unit),
		"newline":       f.ask("a\nb", f.Unit),
		"NUL":           f.ask("a\x00b", f.Unit),
		"space":         f.ask("a b", f.Unit),
		"not ASCII":     f.ask("pvc-é", f.Unit),
		"no size":       f.ask("pvc-1", 0),
		"negative size": f.ask("pvc-1", -1),
		"another pool":  otherPool,
		"no owner":      noOwner,
		"odd owner":     oddOwner,
	}
	for name, s := range specs { // N-50
		if v, err := f.Backend.Create(t.Context(), s); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("Create of %s = %+v, %v, want ErrInvalid", name, v, err)
		}
	}
	for _, name := range []string{"", "-f", "a/b", ".."} {
		if err := f.Backend.Delete(t.Context(), name, owner); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("Delete(%q) = %v, want ErrInvalid", name, err)
		}
		if _, err := f.Backend.Inspect(t.Context(), name); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("Inspect(%q) = %v, want ErrInvalid", name, err)
		}
	}
	if list, err := f.Backend.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List = %v, %v, want none", list, err)
	}
}

// tooLarge are sizes in bytes that a pool never has.
func (f Fixture) tooLarge(p storage.Pool) []int64 {
	if f.Overcommits {
		return []int64{1<<63 - 1}
	}
	return []int64{p.Capacity.Total + 1, 1<<63 - 1}
}

func testNoSpace(t *testing.T, f Fixture) {
	p, err := f.Backend.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range f.tooLarge(p) {
		if v, err := f.Backend.Create(t.Context(), f.ask("pvc-1", bytes)); !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("Create(%d) in a pool of %d = %+v, %v, want ErrNoSpace", bytes, p.Capacity.Total, v, err)
		}
		wantAbsent(t, f, "pvc-1")
	}
}

func testAbsent(t *testing.T, f Fixture) {
	wantAbsent(t, f, "pvc-1")
	if _, err := f.Backend.Activate(t.Context(), "pvc-1", owner); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Activate = %v, want ErrNotFound", err)
	}
	if err := f.Backend.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete of an absent volume = %v", err)
	}
}

func testDelete(t *testing.T, f Fixture) {
	create(t, f, "pvc-1", f.Unit)
	near := create(t, f, "pvc-10", f.Unit)
	for range 2 {
		if err := f.Backend.Delete(t.Context(), "pvc-1", owner); err != nil {
			t.Errorf("Delete = %v", err)
		}
		wantAbsent(t, f, "pvc-1")
	}
	wantVolume(t, f, near)
}

func testDeleteBusy(t *testing.T, f Fixture) {
	v := create(t, f, "pvc-1", f.Unit)
	release := f.Hold(t, v.DevicePath)
	if err := f.Backend.Delete(t.Context(), "pvc-1", owner); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("Delete of a held volume = %v, want ErrBusy", err)
	}
	wantVolume(t, f, v)
	release()
	if err := f.Backend.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete after release = %v", err)
	}
}

func testList(t *testing.T, f Fixture) {
	want := map[string]storage.Volume{}
	for _, name := range []string{"pvc-1", "pvc-2", "pvc-3"} {
		want[name] = create(t, f, name, f.Unit)
	}
	list, err := f.Backend.List(t.Context())
	got := map[string]storage.Volume{}
	for _, v := range list {
		got[v.ID.Name] = v
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("List = %v (-want +got):\n%s", err, diff)
	}
}

func testPool(t *testing.T, f Fixture) {
	before, err := f.Backend.Pool(t.Context())
	if used := before.Capacity.Total - before.Capacity.Available; err != nil || before.Name != f.Pool || used < 0 || used > f.Slack || before.Capacity.Total < f.Unit {
		t.Errorf("Pool = %+v, %v", before, err)
	}
	v, want := create(t, f, "pvc-1", 3*f.Unit), 3*f.Unit
	if f.Overcommits {
		fill(t, f, v, 0xa5)
		want = 2 * edge
	}
	after, err := f.Backend.Pool(t.Context())
	taken := before.Capacity.Available - after.Capacity.Available
	if err != nil || taken < want || taken > want+f.Slack {
		t.Errorf("Pool = %+v, %v, before %+v: a volume of %d bytes took %d", after, err, before, 3*f.Unit, taken)
	}
	if after.Capacity = before.Capacity; after != before {
		t.Errorf("Pool = %+v, want what it was: %+v", after, before)
	}
}

func testContext(t *testing.T, f Fixture) {
	v := create(t, f, "pvc-1", f.Unit)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, inspect := f.Backend.Inspect(ended, "pvc-1")
	_, again := f.Backend.Create(ended, f.ask("pvc-2", f.Unit))
	_, expand := f.Backend.Expand(ended, "pvc-1", owner, 2*f.Unit)
	for call, err := range map[string]error{"Inspect": inspect, "Create": again, "Expand": expand, "Delete": f.Backend.Delete(ended, "pvc-1", owner)} {
		if err == nil || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s after the context's end = %v, want an error", call, err)
		}
	}
	wantVolume(t, f, v)
	wantAbsent(t, f, "pvc-2")
}
