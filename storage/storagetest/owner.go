package storagetest

import (
	"errors"
	"testing"

	"github.com/pillar-csi/pillar/storage"
)

// N-52: an object of the volume's name and size that this lifecycle did not make is not
// taken for its volume, and survives everything the lifecycle does.
func testForeign(t *testing.T, f Fixture) {
	theirs := f.Spec("pvc-theirs", 2*f.Unit)
	theirs.Owner = other
	if _, err := f.Backend.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	f.Stranger(t, "pvc-hand", 2*f.Unit)
	for name, whose := range map[string]storage.Owner{"pvc-theirs": other, "pvc-hand": ""} {
		before, err := f.Backend.Inspect(t.Context(), name)
		if err != nil || before.Owner != whose {
			t.Fatalf("Inspect(%s) = %+v, %v, want owner %q", name, before, err, whose)
		}
		for _, asks := range []storage.Owner{owner, ""} {
			wantForeign(t, f, name, asks)
		}
		wantVolume(t, f, before)
	}
	if err := f.Backend.Delete(t.Context(), "pvc-theirs", other); err != nil {
		t.Errorf("Delete by the owner = %v", err)
	}
}

// wantForeign has every call of an owner refused.
func wantForeign(t *testing.T, f Fixture, name string, asks storage.Owner) {
	t.Helper()
	_, activate := f.Backend.Activate(t.Context(), name, asks)
	_, grow := f.Backend.Expand(t.Context(), name, asks, 4*f.Unit)
	calls := map[string]error{"Activate": activate, "Expand": grow, "Delete": f.Backend.Delete(t.Context(), name, asks)}
	if asks != "" { // else ErrInvalid
		s := f.ask(name, 2*f.Unit)
		_, calls["Create"] = f.Backend.Create(t.Context(), s)
	}
	for call, err := range calls {
		if !errors.Is(err, storage.ErrForeign) {
			t.Errorf("%s(%s) by %q = %v, want ErrForeign", call, name, asks, err)
		}
	}
}
