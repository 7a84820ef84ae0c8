package storagetest

import (
	"errors"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
)

func expand(t *testing.T, f Fixture, v storage.Volume, bytes int64) storage.Volume {
	t.Helper()
	got, err := f.Backend.Expand(t.Context(), v.ID.Name, owner, bytes)
	if err != nil {
		t.Fatalf("Expand(%s, %d) = %v", v.ID.Name, bytes, err)
	}
	return got
}

func testExpand(t *testing.T, f Fixture) {
	v := create(t, f, "pvc-1", 2*f.Unit)
	near := create(t, f, "pvc-2", f.Unit) // no room directly behind the first
	fill(t, f, v, 0xa5)
	release := f.Hold(t, v.DevicePath)
	defer release()
	grown := v
	for _, bytes := range []int64{2*f.Unit + 1, 5 * f.Unit} { // the first is rounded up
		grown.Bytes = (bytes + f.Unit - 1) / f.Unit * f.Unit
		if got := expand(t, f, v, bytes); got != grown {
			t.Errorf("Expand(%d) = %+v, want %+v", bytes, got, grown)
		}
		wantVolume(t, f, grown)
		wantFilled(t, f, v, 0xa5) // both ends of what it was
	}
	fill(t, f, grown, 0x5a)
	wantFilled(t, f, grown, 0x5a)
	wantVolume(t, f, near)
	if v, err := f.Backend.Create(t.Context(), f.ask("pvc-1", 2*f.Unit)); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("Create of the former size = %+v, %v, want ErrConflict", v, err)
	}
}

func testExpandAgain(t *testing.T, f Fixture) {
	v := create(t, f, "pvc-1", 2*f.Unit)
	fill(t, f, v, 0xa5)
	for _, bytes := range []int64{2 * f.Unit, 2*f.Unit - 1} { // rounds to the same
		if got := expand(t, f, v, bytes); got != v {
			t.Errorf("Expand(%d) = %+v, want %+v", bytes, got, v)
		}
	}
	wantFilled(t, f, v, 0xa5)
}

func testExpandShrinks(t *testing.T, f Fixture) {
	v := create(t, f, "pvc-1", 3*f.Unit)
	fill(t, f, v, 0xa5)
	for _, bytes := range []int64{1, 2 * f.Unit} {
		got, err := f.Backend.Expand(t.Context(), "pvc-1", owner, bytes)
		if !errors.Is(err, storage.ErrOutOfRange) || !shrinking(err) {
			t.Errorf("Expand(%d) of %d bytes = %+v, %v, want ErrOutOfRange that says so", bytes, v.Bytes, got, err)
		}
	}
	wantVolume(t, f, v)
	wantFilled(t, f, v, 0xa5)
}

// shrinking: the words users search for (block.md appendix E); those of ZFS are its own.
func shrinking(err error) bool {
	return strings.Contains(err.Error(), "cannot shrink") || strings.Contains(err.Error(), "cannot be decreased")
}

func testExpandNoSpace(t *testing.T, f Fixture) {
	v := create(t, f, "pvc-1", f.Unit)
	p, err := f.Backend.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, bytes := range f.tooLarge(p) {
		if got, err := f.Backend.Expand(t.Context(), "pvc-1", owner, bytes); !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("Expand(%d) in a pool of %d = %+v, %v, want ErrNoSpace", bytes, p.Capacity.Total, got, err)
		}
		wantVolume(t, f, v)
	}
}

func testExpandRefused(t *testing.T, f Fixture) {
	if got, err := f.Backend.Expand(t.Context(), "pvc-1", owner, f.Unit); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Expand of an absent volume = %+v, %v, want ErrNotFound", got, err)
	}
	wantAbsent(t, f, "pvc-1")
	v := create(t, f, "pvc-1", f.Unit)
	for name, bytes := range map[string]int64{"pvc-1": 0, "-f": f.Unit, "..": f.Unit, "a/b": f.Unit} {
		if got, err := f.Backend.Expand(t.Context(), name, owner, bytes); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("Expand(%q, %d) = %+v, %v, want ErrInvalid", name, bytes, got, err)
		}
	}
	wantVolume(t, f, v)
}
