package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/storagetest"
)

// batch is a pool that activates many volumes at once. The devices in late come at the given
// call; those in fail never.
type batch struct {
	*storagetest.Memory
	calls [][]string
	late  map[string]int
	fail  map[string]error
}

func (b *batch) ActivateAll(_ context.Context, owners map[string]storage.Owner) map[string]error {
	results, names := map[string]error{}, []string{}
	for name := range owners {
		names = append(names, name)
		results[name] = b.fail[name]
		if b.late[name] > len(b.calls)+1 {
			results[name] = fmt.Errorf("%s: %w", name, fs.ErrNotExist)
		}
	}
	b.calls = append(b.calls, names)
	return results
}

// opening devices all open.
type opening struct{ *lateDevices }

func (opening) Ready(string) error { return nil }

func devicesOf(ctx context.Context, b storage.Backend, names ...string) map[string]error {
	v := &volumes{devices: opening{}, pools: []pool{{name: "vg0", backend: storage.LVMLV, Backend: b, check: lvm.CheckName,
		device: func(volume string) string { return "/dev/vg0/" + volume }}}}
	owners := map[string]storage.Owner{}
	for _, name := range names {
		owners[name] = ownerA
	}
	errs := map[string]error{}
	for name, d := range v.Devices(ctx, storage.LVMLV, "vg0", owners, time.Now().Add(10*time.Second)) {
		errs[name] = d.Err
		if d.Err == nil && d.Path != "/dev/vg0/"+name {
			errs[name] = fmt.Errorf("path %s", d.Path)
		}
	}
	return errs
}

// Only what is missing is asked for again, and a missing device costs the others no time.
func TestVolumes_Devices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foreign := fmt.Errorf("tags: %w", storage.ErrForeign)
		b := &batch{late: map[string]int{"late": 3, "never": 1000}, fail: map[string]error{"theirs": foreign, "gone": storage.ErrNotFound}}
		begun := time.Now()
		errs := devicesOf(t.Context(), b, "here", "late", "never", "theirs", "gone")
		want := map[string]error{"here": nil, "late": nil, "never": storage.ErrPrecondition, "theirs": storage.ErrForeign, "gone": storage.ErrPrecondition}
		for name, want := range want {
			if err, ok := errs[name]; !ok || !errors.Is(err, want) || errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
		if took := time.Since(begun).Round(time.Second); took != 10*time.Second {
			t.Errorf("Devices took %v, want the wait for the one that never comes", took)
		}
		if len(b.calls[0]) != 5 || len(b.calls[1]) != 2 || len(b.calls[3]) != 1 {
			t.Errorf("asked for %v, want less each time", b.calls[:4])
		}
	})
}

// A backend that has no way to do it at once does it one by one, whatever fails.
func TestVolumes_Devices_oneByOne(t *testing.T) {
	mem := storagetest.NewMemory("vg0", 1<<30)
	if _, err := mem.Create(t.Context(), storage.Spec{ID: storage.VolumeID{Pool: "vg0", Name: "a"}, Owner: ownerA, Bytes: 1}); err != nil {
		t.Fatal(err)
	}
	errs := devicesOf(t.Context(), mem, "a", "b")
	if err, ok := errs["a"]; !ok || err != nil || !errors.Is(errs["b"], storage.ErrPrecondition) {
		t.Errorf("Devices = %v, want a there and b missing", errs)
	}
}

// Of a pool whose devices are late, those that are there are found in the time of a look.
func TestVolumes_Devices_manyMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		names := []string{"here"}
		for i := range 60 {
			names = append(names, fmt.Sprint("missing", i))
		}
		errs := devicesOf(ctx, slow{}, names...)
		if err, ok := errs["here"]; !ok || err != nil || len(errs) != len(names) {
			t.Errorf("Devices = %d results, here: %v, want %d and success", len(errs), err, len(names))
		}
	})
}

// slow takes a second to find that a device is missing, as storage/zfs does.
type slow struct{ storage.Backend }

func (slow) Activate(_ context.Context, name string, _ storage.Owner) (storage.Volume, error) {
	if name == "here" {
		return storage.Volume{DevicePath: "/dev/vg0/here"}, nil
	}
	time.Sleep(time.Second)
	return storage.Volume{}, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
}

// The end of the request ends the wait.
func TestVolumes_Devices_ended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		errs := devicesOf(ctx, &batch{late: map[string]int{"a": 1000, "b": 1000}}, "a", "b")
		if took := time.Since(begun); len(errs) != 2 || errs["a"] == nil || took > 2*time.Second {
			t.Errorf("Devices = %v after %v, want two errors after a second", errs, took)
		}
	})
}
