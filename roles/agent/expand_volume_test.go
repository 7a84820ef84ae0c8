package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

func (r *rig) expand(generation int64, id storage.VolumeID, bytes int64) error {
	_, err := r.ExpandVolume(r.t.Context(), token(generation), storage.LVMLV, transport.NVMeTCP, id, bytes)
	return err
}

const resized = "set nvmet/subsystems/" + nqnA + "/namespaces/1/revalidate_size 1"

func TestAgent_Expand(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.create(1)
	r.must(r.expand(2, idA, 9<<20)) // gated, and without an export
	r.open()
	_, err := r.ExportVolume(ctx, token(3), storage.LVMLV, export())
	r.must(err)
	r.kernel.Trace()
	for range 2 { // the second is a retry: hosts are told again
		size, err := r.ExpandVolume(ctx, token(4), storage.LVMLV, transport.NVMeTCP, idA, 13<<20)
		if err != nil || size != 16<<20 {
			t.Errorf("ExpandVolume = %d, %v, want 16 MiB", size, err)
		}
		if diff := cmp.Diff([]string{resized}, r.kernel.Trace()); diff != "" {
			t.Errorf("kernel saw (-want +got):\n%s", diff)
		}
	}
	disabled := export()
	disabled.Disabled = true
	_, err = r.ExportVolume(ctx, token(5), storage.LVMLV, disabled)
	r.must(err)
	r.kernel.Trace()
	r.must(r.expand(6, idA, 20<<20))
	if trace := r.kernel.Trace(); len(trace) > 0 {
		t.Errorf("a disabled namespace saw %v, want nothing", trace)
	}
}

func TestAgent_Expand_refused(t *testing.T) {
	r := newRig(t)
	r.open()
	r.create(5)
	_, err := r.ExportVolume(t.Context(), token(5), storage.LVMLV, export())
	r.must(err)
	r.kernel.Trace()
	if err := r.expand(4, idA, 16<<20); !errors.Is(err, fencing.ErrStale) {
		t.Errorf("ExpandVolume of a superseded generation = %v, want ErrStale", err)
	}
	if err := r.expand(6, idA, 1<<20); !errors.Is(err, storage.ErrOutOfRange) || !strings.Contains(err.Error(), "cannot shrink") {
		t.Errorf("ExpandVolume to less = %v, want ErrOutOfRange that says so", err)
	}
	if err := r.expand(6, idA, 1<<30); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("ExpandVolume past the pool = %v, want ErrNoSpace", err)
	}
	if err := r.expand(6, storage.VolumeID{Pool: "vg0", Name: "b"}, 1<<20); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("ExpandVolume of nothing = %v, want ErrNotFound", err)
	}
	if vol, err := r.mem.Inspect(t.Context(), "a"); err != nil || vol.Bytes != 8<<20 {
		t.Errorf("volume = %+v, %v, want it as it was", vol, err)
	}
	if trace := r.kernel.Trace(); slices.Contains(trace, resized) {
		t.Errorf("kernel saw %v, want nothing", trace)
	}
}
