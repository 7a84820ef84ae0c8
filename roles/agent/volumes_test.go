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

func TestPool_fit(t *testing.T) {
	tests := map[string]struct {
		pool pool
		ask  storage.LVMParams
		want error
	}{
		"no mode takes the entry's":                  {pool{mode: "linear"}, storage.LVMParams{}, nil},
		"linear on an entry with a thin pool":        {pool{mode: "thin", thinPool: "tp"}, storage.LVMParams{Mode: "linear"}, nil},
		"thin in the entry's pool":                   {pool{mode: "linear", thinPool: "tp"}, storage.LVMParams{Mode: "thin", ThinPool: "tp"}, nil},
		"thin in another pool":                       {pool{mode: "linear", thinPool: "tp"}, storage.LVMParams{Mode: "thin", ThinPool: "x"}, storage.ErrPrecondition},
		"thin on an entry without":                   {pool{mode: "linear"}, storage.LVMParams{Mode: "thin"}, storage.ErrPrecondition},
		"linear that names a pool the entry has not": {pool{mode: "linear"}, storage.LVMParams{Mode: "linear", ThinPool: "x"}, storage.ErrPrecondition},
		"an unknown mode":                            {pool{mode: "linear"}, storage.LVMParams{Mode: "striped"}, storage.ErrInvalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tt.pool.fit(&storage.Spec{LVM: &tt.ask}); !errors.Is(err, tt.want) {
				t.Errorf("fit(%+v) = %v, want %v", tt.ask, err, tt.want)
			}
		})
	}
}

// lateDevices are not there until asked often enough.
type lateDevices struct {
	missing int
	err     error
}

func (d *lateDevices) Ready(string) error {
	d.missing--
	switch {
	case d.err != nil:
		return d.err
	case d.missing >= 0:
		return errNoDevice
	}
	return nil
}

func (*lateDevices) Numbers(string) (major, minor uint32, err error) { return 0, 0, fs.ErrNotExist }
func (*lateDevices) Hold(string, storage.DeviceID) (func() error, error) {
	return func() error { return nil }, nil
}

// memoryWithA is a group vg0 with one volume, a.
func memoryWithA(t *testing.T) *storagetest.Memory {
	t.Helper()
	mem := storagetest.NewMemory("vg0", 1<<30)
	if _, err := mem.Create(t.Context(), storage.Spec{ID: storage.VolumeID{Pool: "vg0", Name: "a"}, Owner: ownerA, Bytes: 1}); err != nil {
		t.Fatal(err)
	}
	return mem
}

func TestVolumes_Devices_one(t *testing.T) {
	denied := errors.New("permission denied")
	tests := map[string]struct {
		devices lateDevices
		volume  string
		until   time.Duration
		want    error
	}{
		"there":                  {lateDevices{}, "a", time.Minute, nil},
		"comes late":             {lateDevices{missing: 2}, "a", time.Minute, nil},
		"missing":                {lateDevices{missing: 99}, "a", 20 * time.Millisecond, storage.ErrPrecondition},
		"looked at, wait or not": {lateDevices{}, "a", -time.Second, nil},
		"not to be opened":       {lateDevices{err: denied}, "a", time.Minute, denied},
		"of no volume":           {lateDevices{}, "b", time.Minute, storage.ErrPrecondition},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			errs := devicesOf(t.Context(), &tt.devices, memoryWithA(t), tt.until, tt.volume)
			if err, ok := errs[tt.volume]; !ok || !errors.Is(err, tt.want) {
				t.Errorf("Devices = %v, want %v", errs, tt.want)
			}
		})
	}
}

// late is a backend whose device comes after some time.
type late struct {
	storage.Backend
	missing int
}

func (l *late) Activate(ctx context.Context, name string, _ storage.Owner) (storage.Volume, error) {
	if l.missing--; l.missing >= 0 {
		return storage.Volume{}, fmt.Errorf("%w: %w", storage.ErrPrecondition, fs.ErrNotExist)
	}
	return l.Inspect(ctx, name)
}

// B-237: a zvol's device may come a while after its pool.
func TestPool_activate(t *testing.T) {
	tests := map[string]struct {
		missing int
		wait    time.Duration
		want    error
	}{"comes late": {3, time.Minute, nil}, "never comes": {1 << 30, time.Minute, storage.ErrPrecondition}, "no time left": {1, -time.Second, storage.ErrPrecondition}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pool{Backend: &late{Backend: memoryWithA(t), missing: tt.missing}}
				if v, err := p.activate(t.Context(), "a", ownerA, time.Now().Add(tt.wait)); !errors.Is(err, tt.want) {
					t.Errorf("activate = %+v, %v, want %v", v, err, tt.want)
				}
			})
		})
	}
}

// B-202: nothing is placed in another parent dataset.
func TestPool_fit_parent(t *testing.T) {
	for parent, want := range map[string]error{"k8s": nil, "": storage.ErrPrecondition, "k8s/b": storage.ErrPrecondition} {
		p := &pool{name: "tank", parent: "k8s"}
		if err := p.fit(&storage.Spec{ZFS: &storage.ZFSParams{Pool: "tank", ParentDataset: parent}}); !errors.Is(err, want) {
			t.Errorf("fit of parent dataset %q = %v, want %v", parent, err, want)
		}
	}
}

// batch is a pool that activates many volumes at once. The devices in late come at the given
// call; those in fail never.
type batch struct {
	*storagetest.Memory
	calls [][]string
	late  map[string]int
	fail  map[string]error
}

func (b *batch) ActivateAll(_ context.Context, owners map[string]storage.Owner) map[string]storage.Activated {
	results, names := map[string]storage.Activated{}, []string{}
	for name := range owners {
		names = append(names, name)
		results[name] = storage.Activated{Err: b.fail[name]}
		if b.late[name] > len(b.calls)+1 {
			results[name] = storage.Activated{Err: fmt.Errorf("%s: %w", name, fs.ErrNotExist)}
		}
	}
	b.calls = append(b.calls, names)
	return results
}

// opening devices all open.
type opening struct{ *lateDevices }

func (opening) Ready(string) error { return nil }

// devicesOf asks for the devices of volumes of vg0 and answers what is wrong with each.
func devicesOf(ctx context.Context, d devices, b storage.Backend, wait time.Duration, names ...string) map[string]error {
	v := &volumes{devices: d, pools: []pool{{name: "vg0", backend: storage.LVMLV, Backend: b, check: lvm.CheckName,
		device: func(volume string) string { return "/dev/vg0/" + volume }}}}
	owners := map[string]storage.Owner{}
	for _, name := range names {
		owners[name] = ownerA
	}
	errs := map[string]error{}
	for name, d := range v.Devices(ctx, storage.LVMLV, "vg0", owners, time.Now().Add(wait)) {
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
		errs := devicesOf(t.Context(), opening{}, b, 10*time.Second, "here", "late", "never", "theirs", "gone")
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

// The end of the request ends the wait.
func TestVolumes_Devices_ended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begun := time.Now()
		errs := devicesOf(ctx, opening{}, &batch{late: map[string]int{"a": 1000, "b": 1000}}, 10*time.Second, "a", "b")
		if took := time.Since(begun); len(errs) != 2 || errs["a"] == nil || took > 2*time.Second {
			t.Errorf("Devices = %v after %v, want two errors after a second", errs, took)
		}
	})
}
