package controller

import (
	"errors"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

func TestParseExpand(t *testing.T) {
	tests := map[string]struct {
		id   string
		size *csi.CapacityRange
		code csiserve.Code
	}{
		"a size":                {"x", &csi.CapacityRange{RequiredBytes: 1}, 0},
		"a size and its limit":  {"x", &csi.CapacityRange{RequiredBytes: 1, LimitBytes: 1}, 0},
		"no volume":             {"", &csi.CapacityRange{RequiredBytes: 1}, csiserve.InvalidArgument},
		"no range":              {"x", nil, csiserve.InvalidArgument},
		"no size":               {"x", &csi.CapacityRange{LimitBytes: 1}, csiserve.InvalidArgument},
		"negative size":         {"x", &csi.CapacityRange{RequiredBytes: -1}, csiserve.InvalidArgument},
		"negative limit":        {"x", &csi.CapacityRange{RequiredBytes: 1, LimitBytes: -1}, csiserve.InvalidArgument},
		"B-451 limit below it":  {"x", &csi.CapacityRange{RequiredBytes: 2, LimitBytes: 1}, csiserve.OutOfRange},
		"nothing but a limit 0": {"x", &csi.CapacityRange{}, csiserve.InvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseExpand(&csi.ControllerExpandVolumeRequest{VolumeId: tt.id, CapacityRange: tt.size})
			wantCode(t, "parseExpand", err, tt.code, "")
		})
	}
}

func TestExpandable(t *testing.T) {
	volume := func(change func(*v1alpha1.PillarVolumeState)) *v1alpha1.PillarVolumeState {
		v := &v1alpha1.PillarVolumeState{Status: v1alpha1.PillarVolumeStateStatus{Phase: v1alpha1.PhaseReady}}
		change(v)
		return v
	}
	adopted := func(preserve, acquired bool) *v1alpha1.PillarVolumeState {
		return volume(func(v *v1alpha1.PillarVolumeState) {
			v.Spec.LVMSource, v.Status.ImportAcquired = &v1alpha1.LVMSource{PreserveOriginal: preserve}, acquired
		})
	}
	tests := map[string]struct {
		v    *v1alpha1.PillarVolumeState
		code csiserve.Code
	}{
		"ready":             {volume(func(*v1alpha1.PillarVolumeState) {}), 0},
		"node phase":        {volume(func(v *v1alpha1.PillarVolumeState) { v.Status.Phase = v1alpha1.PhaseNodeStaged }), 0},
		"B-125 deleting":    {volume(func(v *v1alpha1.PillarVolumeState) { v.Status.Deleting = true }), csiserve.FailedPrecondition},
		"B-125 half made":   {volume(func(v *v1alpha1.PillarVolumeState) { v.Status.Phase = v1alpha1.PhaseCreatePartial }), csiserve.FailedPrecondition},
		"B-461 preserved":   {adopted(true, true), csiserve.FailedPrecondition},
		"B-461 not adopted": {adopted(false, false), csiserve.FailedPrecondition},
		"adopted":           {adopted(false, true), 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) { wantCode(t, "expandable", expandable(tt.v), tt.code, "cannot expand volume") })
	}
}

func (b *bench) expandTo(id string, required, limit int64) (*csi.ControllerExpandVolumeResponse, error) {
	return b.ControllerExpandVolume(b.t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit},
	})
}

func TestServer_ControllerExpandVolume(t *testing.T) {
	b := newBench(t)
	id := b.made("pvc-e")
	wantCode(t, "publish", b.publish(id, "w1", writer), 0, "")
	wantCalls(t, b.agent, "AllowInitiator g3")
	for _, generation := range []string{"g4", "g5"} { // the second is a retry
		resp, err := b.expandTo(id, 2<<30-1, 0)
		if err != nil || resp.CapacityBytes != 2<<30 || !resp.NodeExpansionRequired {
			t.Errorf("ControllerExpandVolume = %v, %v, want 2 GiB and the node to follow", resp, err)
		}
		wantCalls(t, b.agent, "ExpandVolume "+generation)
	}
	v := b.state(b.name + "pvc-e")
	if v.Status.CapacityBytes != 2<<30 || v.Spec.CapacityBytes != 1<<30 || len(v.Status.PublishedNodes) != 1 || v.Status.Phase != v1alpha1.PhaseReady {
		t.Errorf("record = %+v, want 2 GiB, made for 1 GiB, and as it was", v.Status)
	}
	req := b.createRequest("pvc-e")
	if _, err := b.CreateVolume(t.Context(), req); err != nil { // compared with the actual size
		t.Errorf("CreateVolume again: %v", err)
	}
	wantCode(t, "unpublish", b.unpublish(id, ""), 0, "")
	wantCode(t, "delete", b.delete(id), 0, "")
}

func TestServer_ControllerExpandVolume_refuses(t *testing.T) {
	b := newBench(t)
	id := b.made("pvc-f")
	expand := func(id string, required, limit int64) error { _, err := b.expandTo(id, required, limit); return err }
	wantCode(t, "unknown volume", expand(id+"x", 1, 0), csiserve.NotFound, "does not exist")
	wantCode(t, "malformed volume", expand("x", 1, 0), csiserve.NotFound, "does not exist")
	wantCode(t, "limit", expand(id, 2<<30, 1<<30), csiserve.OutOfRange, "limit_bytes")
	wantCalls(t, b.agent)
	wantCode(t, "smaller", expand(id, 1<<20, 0), csiserve.OutOfRange, "cannot shrink")
	wantCode(t, "no space", expand(id, 100<<30, 0), csiserve.ResourceExhausted, "")
	b.agent.set(func(a *fakeAgent) { a.fail["ExpandVolume"] = errors.New("lvextend: odd text") })
	wantCode(t, "odd failure", expand(id, 2<<30, 0), csiserve.Internal, "odd text")
	b.agent.set(func(a *fakeAgent) { a.fail = map[string]error{} })
	if v := b.state(b.name + "pvc-f"); v.Status.CapacityBytes != 1<<30 {
		t.Errorf("recorded size = %d, want 1 GiB", v.Status.CapacityBytes)
	}
	wantCode(t, "past the limit by rounding", expand(id, 2<<30-1, 2<<30-1), csiserve.OutOfRange, "the limit is")
	if v := b.state(b.name + "pvc-f"); v.Status.CapacityBytes != 2<<30 {
		t.Errorf("recorded size = %d, want what the backend has", v.Status.CapacityBytes)
	}
	b.agent.set(func(a *fakeAgent) { a.fail["DeleteVolume"] = errors.New("device is open") })
	wantCode(t, "delete", b.delete(id), csiserve.Internal, "")
	wantCode(t, "deleting", expand(id, 4<<30, 0), csiserve.FailedPrecondition, "cannot expand volume")
	b.agent.set(func(a *fakeAgent) { a.fail = map[string]error{} })
	wantCode(t, "delete again", b.delete(id), 0, "")
}
