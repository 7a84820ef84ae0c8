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
func (*lateDevices) Hold(string) (func() error, error)               { return func() error { return nil }, nil }

func TestVolumes_Device(t *testing.T) {
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
			mem := storagetest.NewMemory("vg0", 1<<30)
			if _, err := mem.Create(t.Context(), storage.Spec{ID: storage.VolumeID{Pool: "vg0", Name: "a"}, Owner: ownerA, Bytes: 1}); err != nil {
				t.Fatal(err)
			}
			v := &volumes{devices: &tt.devices, pools: []pool{{name: "vg0", backend: storage.LVMLV, check: lvm.CheckName, Backend: mem,
				device: func(volume string) string { return "/dev/vg0/" + volume }}}}
			path, err := v.Device(context.Background(), storage.LVMLV, storage.VolumeID{Pool: "vg0", Name: tt.volume}, ownerA, time.Now().Add(tt.until))
			if !errors.Is(err, tt.want) || err == nil && path != "/dev/vg0/a" {
				t.Errorf("Device = %q, %v, want %v", path, err, tt.want)
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
				mem := storagetest.NewMemory("tank", 1<<30)
				if _, err := mem.Create(t.Context(), storage.Spec{ID: storage.VolumeID{Pool: "tank", Name: "a"}, Owner: ownerA, Bytes: 1}); err != nil {
					t.Fatal(err)
				}
				p := &pool{Backend: &late{Backend: mem, missing: tt.missing}}
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
