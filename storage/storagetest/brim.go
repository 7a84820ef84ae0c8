package storagetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/pillar-csi/pillar/storage"
)

// Brim holds a backend that overcommits to what it owes when one volume has taken all of
// the pool: what is there stays usable and readable, nothing new is taken, and what a
// delete frees can be taken again (D-14, H-51).
func Brim(t *testing.T, f Fixture) {
	p, err := f.Backend.Pool(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	big := create(t, f, "pvc-big", 2*p.Capacity.Total/f.Unit*f.Unit) // promised, not taken
	small := create(t, f, "pvc-small", f.Unit)
	fill(t, f, small, 0x5a)
	if p, err = f.Backend.Pool(t.Context()); err != nil {
		t.Fatal(err)
	}
	pour(t, f, big, p.Capacity.Available)
	wantFull(t, f, big, small)
	wantFilled(t, f, small, 0x5a)
	fill(t, f, small, 0xa5) // what it has it may write
	wantFilled(t, f, small, 0xa5)
	if err := f.Backend.Delete(t.Context(), "pvc-big", owner); err != nil {
		t.Fatalf("Delete from a full pool = %v", err)
	}
	fill(t, f, create(t, f, "pvc-next", 2*f.Unit), 0xa5)
	wantFilled(t, f, small, 0xa5)
}

// pour writes so many bytes from the volume's start.
func pour(t *testing.T, f Fixture, v storage.Volume, n int64) {
	t.Helper()
	d, err := f.Open(v.DevicePath)
	if err != nil {
		t.Fatal(err)
	}
	content := bytes.Repeat([]byte{0xa5}, edge)
	for at := int64(0); at < n && err == nil; at += edge {
		_, err = d.WriteAt(content[:min(edge, n-at)], at)
	}
	if err := errors.Join(err, d.Sync(), d.Close()); err != nil {
		t.Fatalf("write %d bytes to %s: %v", n, v.DevicePath, err)
	}
}

// wantFull holds every call to a pool that has nothing left.
func wantFull(t *testing.T, f Fixture, big, small storage.Volume) {
	t.Helper()
	if p, err := f.Backend.Pool(t.Context()); err != nil || p.Capacity.Available != 0 {
		t.Errorf("Pool = %+v, %v, want nothing available", p, err)
	}
	_, made := f.Backend.Create(t.Context(), f.ask("pvc-next", f.Unit))
	_, grown := f.Backend.Expand(t.Context(), "pvc-small", owner, 4*f.Unit)
	for call, err := range map[string]error{"Create": made, "Expand": grown} {
		if !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("%s in a full pool = %v, want ErrNoSpace", call, err)
		}
	}
	wantAbsent(t, f, "pvc-next")
	for _, v := range []storage.Volume{big, small} {
		wantVolume(t, f, v)
		if again := create(t, f, v.ID.Name, v.Bytes); again != v {
			t.Errorf("Create again = %+v, want %+v", again, v)
		}
		if got := expand(t, f, v, v.Bytes); got != v {
			t.Errorf("Expand to the size it has = %+v, want %+v", got, v)
		}
	}
}
