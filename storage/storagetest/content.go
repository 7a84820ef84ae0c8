package storagetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/pillar-csi/pillar/storage"
)

// edge is how much of a volume's start and end must be clean: what a node reads before it
// calls a device blank (B-221, U-32).
const edge = 1 << 20

// fill writes data to both ends of a volume, where signatures of filesystems, RAID, LVM
// and partitions live, and has it written before it returns.
func fill(t *testing.T, f Fixture, v storage.Volume, data byte) {
	t.Helper()
	d, err := f.Open(v.DevicePath)
	if err != nil {
		t.Fatalf("open %s: %v", v.DevicePath, err)
	}
	content := bytes.Repeat([]byte{data}, int(min(edge, v.Bytes)))
	_, start := d.WriteAt(content, 0)
	_, end := d.WriteAt(content, v.Bytes-int64(len(content)))
	if err := errors.Join(start, end, d.Sync(), d.Close()); err != nil {
		t.Fatalf("write %s: %v", v.DevicePath, err)
	}
}

func wantFilled(t *testing.T, f Fixture, v storage.Volume, data byte) {
	t.Helper()
	d, err := f.Open(v.DevicePath)
	if err != nil {
		t.Fatalf("open %s: %v", v.DevicePath, err)
	}
	want := bytes.Repeat([]byte{data}, int(min(edge, v.Bytes)))
	for _, at := range []int64{0, v.Bytes - int64(len(want))} {
		got := make([]byte, len(want))
		if _, err := d.ReadAt(got, at); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s from byte %d does not hold %#x throughout but %#x ...: %v", v.DevicePath, at, data, got[:16], err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// N-9: the same extents again, full of a deleted claim's data.
func testBlank(t *testing.T, f Fixture) {
	for _, units := range []int64{1, 4} {
		for range 2 {
			v := create(t, f, "pvc-1", units*f.Unit)
			wantFilled(t, f, v, 0)
			fill(t, f, v, 0xa5)
			if err := f.Backend.Delete(t.Context(), "pvc-1", owner); err != nil {
				t.Fatalf("Delete = %v", err)
			}
		}
	}
}

// N-10: a create that comes late or twice.
func testKeepsData(t *testing.T, f Fixture) {
	v := create(t, f, "pvc-1", 2*f.Unit)
	fill(t, f, v, 0xa5)
	create(t, f, "pvc-1", 2*f.Unit)
	if _, err := f.Backend.Activate(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Activate = %v", err)
	}
	_, _ = f.Backend.Create(t.Context(), f.ask("pvc-1", 3*f.Unit)) // refused
	wantFilled(t, f, v, 0xa5)
}

func testReboot(t *testing.T, f Fixture) {
	v := create(t, f, "pvc-1", 2*f.Unit)
	fill(t, f, v, 0xa5)
	f.Reboot(t)
	for range 2 {
		got, err := f.Backend.Activate(t.Context(), "pvc-1", owner)
		got.Device = storage.DeviceID{} // the kernel says
		if err != nil || got != v {
			t.Errorf("Activate = %+v, %v, want %+v", got, err, v)
		}
	}
	wantFilled(t, f, v, 0xa5)
	f.Reboot(t)
	if got := create(t, f, "pvc-1", 2*f.Unit); got != v {
		t.Errorf("Create after a reboot = %+v, want %+v", got, v)
	}
	wantFilled(t, f, v, 0xa5)
	f.Reboot(t)
	if err := f.Backend.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete of an inactive volume = %v", err)
	}
	wantAbsent(t, f, "pvc-1")
}

func testActivateAll(t *testing.T, f Fixture) {
	theirs := f.Spec("pvc-theirs", f.Unit)
	theirs.Owner = other
	if _, err := f.Backend.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	one, two := create(t, f, "pvc-1", 2*f.Unit), create(t, f, "pvc-2", f.Unit)
	fill(t, f, one, 0xa5)
	fill(t, f, two, 0x5a)
	f.Reboot(t)
	want := map[string]error{"pvc-1": nil, "pvc-2": nil, "pvc-3": storage.ErrNotFound, "pvc-theirs": storage.ErrForeign, "-f": storage.ErrInvalid}
	owners := map[string]storage.Owner{}
	for name := range want {
		owners[name] = owner
	}
	for range 2 {
		results := f.Backend.ActivateAll(t.Context(), owners)
		for name, want := range want {
			if got, ok := results[name]; !ok || !errors.Is(got.Err, want) {
				t.Errorf("ActivateAll: %s = %v, want %v", name, got.Err, want)
			}
		}
		if len(results) != len(owners) {
			t.Errorf("ActivateAll = %v, want one result per name", results)
		}
	}
	wantFilled(t, f, one, 0xa5)
	wantFilled(t, f, two, 0x5a)
}
