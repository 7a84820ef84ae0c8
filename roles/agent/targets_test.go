package agent

import (
	"testing"

	"github.com/pillar-csi/pillar/storage"
)

// B-253: a transfer limit that the kernel's port cannot hold is said once, and is no failure.
func TestAgent_saysOnceThatNodesLimitThemselves(t *testing.T) {
	s := newSimulation(t)
	ctx := t.Context()
	_, err := s.Reconcile(ctx, true, nil)
	for _, name := range []string{"a", "b"} {
		id := storage.VolumeID{Pool: "vg0", Name: name}
		if err == nil {
			_, err = s.CreateVolume(ctx, token(1), storage.Spec{ID: id, Bytes: 8 << 20, Backend: storage.LVMLV,
				LVM: &storage.LVMParams{VolumeGroup: "vg0", Mode: "linear"}})
		}
		e := exportOf(id)
		for _, e.MaxDataTransferSize = range []*int32{nil, new(int32(1 << 20))} {
			if err == nil {
				_, err = s.ExportVolume(ctx, token(2), storage.LVMLV, e)
			}
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	const line = "transfer limits are left to the nodes: this kernel's nvmet has no param_mdts (Linux 7.1 has)"
	if n := s.log.FilterMessage(line).Len(); n != 1 {
		t.Errorf("said %d times that the nodes limit themselves, want once", n)
	}
}
