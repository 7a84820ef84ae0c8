package controller

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

func (b *bench) capacity(params map[string]string, caps ...*csi.VolumeCapability) (int64, error) {
	resp, err := b.GetCapacity(b.t.Context(), &csi.GetCapacityRequest{Parameters: params, VolumeCapabilities: caps})
	return resp.GetAvailableCapacity(), err
}

// TestServer_GetCapacity is B-127.
func TestServer_GetCapacity(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	byHand := map[string]string{v1alpha1.StoreRefKey: b.name, v1alpha1.ProtocolRefKey: b.name}
	tests := map[string]struct {
		params map[string]string
		caps   []*csi.VolumeCapability
		want   int64
	}{
		"of a class":                    {map[string]string{v1alpha1.StorageClassKey: b.name}, nil, 8 << 30},
		"of a hand-written class":       {byHand, []*csi.VolumeCapability{mount(writer)}, 8 << 30},
		"for what cannot be made there": {byHand, []*csi.VolumeCapability{mount(5)}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := b.capacity(test.params, test.caps...); err != nil || got != test.want {
				t.Errorf("GetCapacity(%v) = %d, %v, want %d", test.params, got, err, test.want)
			}
		})
	}
}

func TestCodes_GetCapacity(t *testing.T) {
	of := func(params map[string]string) func(b *bench) error {
		return func(b *bench) error { _, err := b.capacity(params); return err }
	}
	own := func(spoil func(b *bench)) func(b *bench) error {
		return func(b *bench) error {
			spoil(b)
			return of(map[string]string{v1alpha1.StorageClassKey: b.name})(b)
		}
	}
	run(t, "GetCapacity", map[string]refusal{
		"unknown parameter": {of(map[string]string{v1alpha1.KeyPrefix + "x": "y"}), csiserve.InvalidArgument, "unsupported StorageClass parameter"},
		"B-127 class gone":  {of(map[string]string{v1alpha1.StorageClassKey: "none"}), csiserve.FailedPrecondition, "not found"},
		"B-127 store gone":  {own(func(b *bench) { b.drop(&v1alpha1.PillarStore{ObjectMeta: b.named()}) }), csiserve.FailedPrecondition, "not found"},
		"B-127 agent gone":  {own((*bench).withoutAgent), csiserve.FailedPrecondition, "PillarAgent"},
		"B-127 no address":  {own(func(b *bench) { b.address("") }), csiserve.Unavailable, "no resolved address"},
		"B-127 unreachable": {own(func(b *bench) { b.failing("GetCapacity", agentrpc.ErrUnavailable) }), csiserve.Unavailable, "read capacity of pool vg0"},
		"pool unknown":      {ofUnknownPool, csiserve.NotFound, "read capacity of pool vg9"},
		"an odd tool":       {own(func(b *bench) { b.failing("GetCapacity", errors.New("vgs: odd")) }), csiserve.Internal, "vgs: odd"},
	})
}

// ofUnknownPool asks for a store whose pool the agent does not have.
func ofUnknownPool(b *bench) error {
	b.create(&v1alpha1.PillarStore{ObjectMeta: metav1.ObjectMeta{Name: b.name + "-vg9"}, Spec: v1alpha1.PillarStoreSpec{
		AgentRef: b.name, Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg9"}},
	}})
	_, err := b.capacity(map[string]string{v1alpha1.StoreRefKey: b.name + "-vg9", v1alpha1.ProtocolRefKey: b.name})
	return err
}

// TestServer_GetCapacity_all is U-10: Ready block stores, each pool once.
func TestServer_GetCapacity_all(t *testing.T) {
	b := newBench(t) // not parallel: it counts the stores of everybody
	ready := func(name string, backend v1alpha1.Backend) {
		s := &v1alpha1.PillarStore{ObjectMeta: metav1.ObjectMeta{Name: b.name + name}, Spec: v1alpha1.PillarStoreSpec{AgentRef: b.name, Backend: backend}}
		b.create(s)
		meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{Type: v1alpha1.Ready, Status: metav1.ConditionTrue, Reason: "AllConditionsMet"})
		if err := b.api.Status().Update(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	before, err := b.capacity(nil) // the bench's own store is not Ready
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		store   string
		backend v1alpha1.Backend
		want    int64 // GiB more than before
	}{
		{"-1", vg0, 8},
		{"-2", v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0", ThinPool: "t"}}, 8}, // the same pool
		{"-3", v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", VolumeType: v1alpha1.ZFSVolumeTypeDataset}}, 8},
		{"-4", v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg1"}}, 8 + 3},
	} {
		ready(row.store, row.backend)
		if got, err := b.capacity(nil); err != nil || got-before != row.want<<30 {
			t.Errorf("GetCapacity() with store %s = %d more, %v, want %d GiB", row.store, got-before, err, row.want)
		}
	}
	b.failing("GetCapacity", agentrpc.ErrUnavailable)
	if _, err := b.capacity(nil); csiserve.CodeOf(err) != csiserve.Unavailable {
		t.Errorf("GetCapacity() with an agent away = %v, want Unavailable", err)
	}
}
