package storagetest_test

import (
	"errors"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/storagetest"
)

func spec(name string, bytes int64) storage.Spec {
	return storage.Spec{ID: storage.VolumeID{Pool: "vg0", Name: name}, Owner: "uid", Bytes: bytes, Backend: storage.LVMLV}
}

func TestMemory(t *testing.T) {
	storagetest.Run(t, func(t testing.TB) storagetest.Fixture {
		m := storagetest.NewMemory("vg0", 32*storagetest.Unit)
		return storagetest.Fixture{
			Backend: m,
			Pool:    "vg0",
			Unit:    storagetest.Unit,
			Names:   []string{"a.b+c_d-e"},
			Spec:    spec,
			Open:    m.Open,
			Hold: func(t testing.TB, path string) func() {
				release, err := m.Hold(path)
				if err != nil {
					t.Fatal(err)
				}
				return func() { _ = release() }
			},
			Stranger: func(_ testing.TB, name string, bytes int64) { m.Stranger(name, bytes) },
			Reboot:   func(testing.TB) { m.Reboot() },
		}
	})
}

func TestMemory_Fail(t *testing.T) {
	m := storagetest.NewMemory("vg0", 32*storagetest.Unit)
	odd := errors.New("text nobody knows")
	m.Fail(odd)
	if _, err := m.Create(t.Context(), spec("pvc-1", 1)); !errors.Is(err, odd) {
		t.Errorf("Create = %v, want %v", err, odd)
	}
	m.Fail(nil)
	if _, err := m.Create(t.Context(), spec("pvc-1", 1)); err != nil {
		t.Errorf("Create = %v", err)
	}
}
