package controller

import (
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
)

// TestServer_recordAlone unpublishes and deletes a volume of which nothing but the record
// and the agent are left: no node, no class, no store, no protocol (N-24).
func TestServer_recordAlone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.made("pvc-g")
	wantCode(t, "publish", onW1(b, id), 0, "")
	noCSINode(b)
	b.drop(&v1alpha1.PillarStorageClass{ObjectMeta: b.named()})
	b.drop(&v1alpha1.PillarStore{ObjectMeta: b.named()})
	b.drop(&v1alpha1.PillarProtocol{ObjectMeta: b.named()})
	req := b.createRequest("pvc-g")
	if _, err := b.CreateVolume(t.Context(), req); err != nil {
		t.Errorf("CreateVolume again = %v, want what is recorded", err)
	}
	wantCode(t, "publish another node", b.publish(id, "w2", writer), csiserve.FailedPrecondition, "is published to another node")
	wantCode(t, "unpublish", offW1(b, id), 0, "")
	wantCode(t, "publish another node", b.publish(id, "w2", writer), 0, "") // digests off, U-9
	wantCode(t, "unpublish all", b.unpublish(id, ""), 0, "")
	wantCode(t, "delete", b.delete(id), 0, "")
	wantCalls(t, b.agent, "AllowInitiator g3", "DenyInitiator g4", "AllowInitiator g6", "DenyInitiator g7", "UnexportVolume g9", "DeleteVolume g9")
}

// TestServer_markedForDeletion deletes the record by hand: it still exists for every rule
// until DeleteVolume has ended the volume (B-50, U-51).
func TestServer_markedForDeletion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.made("pvc-m")
	if err := b.api.Delete(t.Context(), b.state(b.name+"pvc-m")); err != nil {
		t.Fatal(err)
	}
	resp, err := b.CreateVolume(t.Context(), b.createRequest("pvc-m"))
	if err != nil || resp.Volume.VolumeId != id {
		t.Errorf("CreateVolume again = %v, %v, want the same volume", resp, err)
	}
	wantCode(t, "publish", onW1(b, id), 0, "")
	wantCode(t, "expand", func() error { _, err := b.expandTo(id, 2<<30, 0); return err }(), 0, "")
	wantCode(t, "delete", b.delete(id), csiserve.FailedPrecondition, "unpublish it first")
	wantCode(t, "unpublish", offW1(b, id), 0, "")
	if b.state(b.name+"pvc-m") == nil {
		t.Fatal("the record is gone before its volume")
	}
	wantCode(t, "delete", b.delete(id), 0, "")
	if v := b.state(b.name + "pvc-m"); v != nil {
		t.Errorf("record is left: %v", v)
	}
}

// TestServer_unpublishAll goes on past a node whose revoke fails (B-111).
func TestServer_unpublishAll(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.made("pvc-n")
	wantCode(t, "publish w1", b.publish(id, "w1", reader), 0, "")
	wantCode(t, "publish w2", b.publish(id, "w2", reader), 0, "")
	b.agent.set(func(a *fakeAgent) { a.see = refuseInitiator("nqn.2014-08.org.nvmexpress:uuid:" + b.name + "w1") })
	wantCode(t, "unpublish all", b.unpublish(id, ""), csiserve.Internal, "deny node "+b.name+"w1")
	b.wantReady("pvc-n", "False/ControllerUnpublishVolumeFailed", "deny node "+b.name+"w1")
	if left := b.state(b.name + "pvc-n").Status.PublishedNodes; len(left) != 1 || left[0].NodeID != b.name+"w1" || !left[0].Revoking {
		t.Errorf("publications = %+v, want w1 alone, revoking", left)
	}
	b.agent.set(func(a *fakeAgent) { a.see = nil })
	wantCode(t, "unpublish again", b.unpublish(id, ""), 0, "")
	b.wantReady("pvc-n", "True/AllConditionsMet", "backend and export exist")
}

// wantReady compares the condition Ready of a record.
func (b *bench) wantReady(name, want, says string) {
	b.t.Helper()
	c := meta.FindStatusCondition(b.state(b.name+name).Status.Conditions, v1alpha1.Ready)
	if c == nil || string(c.Status)+"/"+c.Reason != want || !strings.Contains(c.Message, says) {
		b.t.Errorf("Ready = %+v, want %s with %q", c, want, says)
	}
}

// TestServer_endFails: the record of a volume that cannot be removed says why, once.
func TestServer_endFails(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.made("pvc-e")
	b.failing("DeleteVolume", storage.ErrBusy)
	wantCode(t, "delete", b.delete(id), csiserve.FailedPrecondition, "delete volume")
	b.wantReady("pvc-e", "False/DeleteVolumeFailed", "delete volume")
	before := b.state(b.name + "pvc-e").ResourceVersion
	wantCode(t, "delete again", b.delete(id), csiserve.FailedPrecondition, "delete volume")
	if after := b.state(b.name + "pvc-e").ResourceVersion; after != before {
		t.Errorf("the same failure was written twice: version %s, then %s", before, after)
	}
	b.failing("DeleteVolume", nil)
	wantCode(t, "delete at last", b.delete(id), 0, "")
}

// TestCreateRequest_fits: a limit nobody gave is not shown.
func TestCreateRequest_fits(t *testing.T) {
	v := &v1alpha1.PillarVolumeState{Status: v1alpha1.PillarVolumeStateStatus{Phase: v1alpha1.PhaseReady, CapacityBytes: 1}}
	wantCode(t, "fits", (&createRequest{required: 2}).fits(v), csiserve.AlreadyExists, "required are 2")
	if err := (&createRequest{required: 2}).fits(v); strings.Contains(err.Error(), "limit") {
		t.Errorf("fits = %v, want no limit", err)
	}
	wantCode(t, "fits", (&createRequest{required: 2, limit: 3}).fits(v), csiserve.AlreadyExists, "required are 2, limit is 3")
}

// TestServer_ValidateVolumeCapabilities is B-126.
func TestServer_ValidateVolumeCapabilities(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.made("pvc-v")
	validate := func(id string, caps ...*csi.VolumeCapability) (*csi.ValidateVolumeCapabilitiesResponse, error) {
		return b.Server.ValidateVolumeCapabilities(t.Context(), &csi.ValidateVolumeCapabilitiesRequest{
			VolumeId: id, VolumeCapabilities: caps, VolumeContext: map[string]string{"a": "b"},
		})
	}
	tests := map[string]struct {
		id        string
		caps      []*csi.VolumeCapability
		code      csiserve.Code
		confirmed bool
	}{
		"no volume":              {"", []*csi.VolumeCapability{mount(writer)}, csiserve.InvalidArgument, false},
		"no capabilities":        {id, nil, csiserve.InvalidArgument, false},
		"malformed ID":           {"x", []*csi.VolumeCapability{mount(writer)}, csiserve.NotFound, false},
		"unknown volume":         {id + "x", []*csi.VolumeCapability{mount(writer)}, csiserve.NotFound, false},
		"contradicting ID":       {"x" + id, []*csi.VolumeCapability{mount(writer)}, csiserve.FailedPrecondition, false},
		"all supported":          {id, []*csi.VolumeCapability{mount(writer), capability(true, reader)}, 0, true},
		"one unsupported":        {id, []*csi.VolumeCapability{mount(writer), mount(5)}, 0, false},
		"without an access mode": {id, []*csi.VolumeCapability{mount(0)}, 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			resp, err := validate(test.id, test.caps...)
			wantCode(t, "ValidateVolumeCapabilities", err, test.code, "")
			if err == nil && ((resp.Confirmed != nil) != test.confirmed || (resp.Message == "") != test.confirmed) {
				t.Errorf("ValidateVolumeCapabilities = %v, want confirmed %t or a message", resp, test.confirmed)
			}
		})
	}
	wantCalls(t, b.agent)
}

// TestServer_unimplemented are the calls of B-62 that are not offered.
func TestServer_unimplemented(t *testing.T) {
	s := &Server{}
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"ListVolumes":            func() error { _, err := s.ListVolumes(ctx, nil); return err },
		"ControllerGetVolume":    func() error { _, err := s.ControllerGetVolume(ctx, nil); return err },
		"ControllerModifyVolume": func() error { _, err := s.ControllerModifyVolume(ctx, nil); return err },
		"CreateSnapshot":         func() error { _, err := s.CreateSnapshot(ctx, nil); return err },
		"DeleteSnapshot":         func() error { _, err := s.DeleteSnapshot(ctx, nil); return err },
		"ListSnapshots":          func() error { _, err := s.ListSnapshots(ctx, nil); return err },
		"GetSnapshot":            func() error { _, err := s.GetSnapshot(ctx, nil); return err },
		"volume health":          func() error { _, err := s.ControllerGetVolumeHealth(ctx, nil); return err },
		"health of all volumes":  func() error { _, err := s.ControllerListVolumeHealth(ctx, nil); return err },
	} {
		if err := call(); csiserve.CodeOf(err) != csiserve.Unimplemented {
			t.Errorf("%s = %v, want Unimplemented", name, err)
		}
	}
}

func TestSole(t *testing.T) {
	const key = v1alpha1.HostNQNAnnotation
	node := func(name, nqn string) metav1.PartialObjectMetadata {
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{key: nqn}}}
	}
	all := []metav1.PartialObjectMetadata{node("a", "nqn.1"), node("b", "nqn.2"), node("c", "nqn.2"), node("d", ""), node("e", "")}
	for name, code := range map[string]csiserve.Code{
		"a": 0, "b": csiserve.FailedPrecondition, "c": csiserve.FailedPrecondition, "d": csiserve.FailedPrecondition, "f": csiserve.NotFound,
	} {
		_, err := sole(all, name, key)
		wantCode(t, "sole "+name, err, code, "")
	}
}

// TestServer_olderThanAgent: the cluster's data went back in time, as a restored backup does,
// and the agent refuses its orders. Each attempt to detach or to delete moves the record on by
// one, until the agent follows again (docs/operations.md, StaleGeneration; N-51).
func TestServer_olderThanAgent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.made("pvc-o")
	wantCode(t, "publish", onW1(b, id), 0, "") // g3
	v := b.state(b.name + "pvc-o")
	forgotten := fencing.Token{UID: string(v.UID), Generation: 6}
	if err := b.agent.fenced(t.Context(), v.Spec.AgentVolumeID, forgotten, fencing.Op{Class: fencing.Grant}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "publish again", onW1(b, id), csiserve.FailedPrecondition, "allow node")
	for range 2 { // g4, g5
		wantCode(t, "unpublish", offW1(b, id), csiserve.FailedPrecondition, "deny node")
	}
	wantCode(t, "unpublish", offW1(b, id), 0, "")
	wantCode(t, "publish", onW1(b, id), 0, "")    // g8
	wantCode(t, "unpublish", offW1(b, id), 0, "") // g9, g10
	forgotten.Generation = 13
	if err := b.agent.fenced(t.Context(), v.Spec.AgentVolumeID, forgotten, fencing.Op{Class: fencing.Grant}, func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	for range 2 { // g11, g12
		wantCode(t, "delete", b.delete(id), csiserve.FailedPrecondition, "unexport volume")
	}
	wantCode(t, "delete", b.delete(id), 0, "")
	if b.state(b.name+"pvc-o") != nil || len(b.agent.picture()) > 0 {
		t.Error("the volume is not gone")
	}
}
