package agent

import (
	"context"
	"errors"
	"io/fs"
	"testing"
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
			if _, err := mem.Create(t.Context(), storage.Spec{ID: storage.VolumeID{Pool: "vg0", Name: "a"}, Bytes: 1}); err != nil {
				t.Fatal(err)
			}
			v := &volumes{pools: []pool{{name: "vg0", backend: storage.LVMLV, check: lvm.CheckName, Backend: mem}}, devices: &tt.devices}
			path, err := v.Device(context.Background(), storage.LVMLV, storage.VolumeID{Pool: "vg0", Name: tt.volume}, time.Now().Add(tt.until))
			if !errors.Is(err, tt.want) || err == nil && path != "/dev/vg0/a" {
				t.Errorf("Device = %q, %v, want %v", path, err, tt.want)
			}
		})
	}
}
