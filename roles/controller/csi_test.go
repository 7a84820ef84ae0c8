package controller

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func mount(mode csi.VolumeCapability_AccessMode_Mode) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
}

const (
	writer = csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	reader = csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
)

func (b *bench) createRequest(name string) *csi.CreateVolumeRequest {
	return &csi.CreateVolumeRequest{
		Name:               b.name + name,
		CapacityRange:      &csi.CapacityRange{RequiredBytes: 1 << 30},
		VolumeCapabilities: []*csi.VolumeCapability{mount(writer)},
		Parameters:         map[string]string{v1alpha1.StorageClassKey: b.name},
	}
}

// made creates a volume and answers its ID.
func (b *bench) made(name string) string {
	b.t.Helper()
	resp, err := b.CreateVolume(b.t.Context(), b.createRequest(name))
	if err != nil {
		b.t.Fatalf("CreateVolume(%s): %v", name, err)
	}
	b.agent.take()
	return resp.Volume.VolumeId
}

func (b *bench) publish(id, node string, mode csi.VolumeCapability_AccessMode_Mode) error {
	_, err := b.ControllerPublishVolume(b.t.Context(), &csi.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: b.name + node, VolumeCapability: mount(mode),
	})
	return err
}

func (b *bench) unpublish(id, node string) error {
	_, err := b.ControllerUnpublishVolume(b.t.Context(), &csi.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node})
	return err
}

func (b *bench) delete(id string) error {
	_, err := b.DeleteVolume(b.t.Context(), &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

// wantCode checks code and message fragment of an answer.
func wantCode(t *testing.T, call string, err error, code csiserve.Code, fragment string) {
	t.Helper()
	if got := csiserve.CodeOf(err); got != code || (err != nil && !strings.Contains(err.Error(), fragment)) {
		t.Errorf("%s = %v (%v), want %v with %q", call, got, err, code, fragment)
	}
}

func wantCalls(t *testing.T, a *fakeAgent, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, a.take()); diff != "" {
		t.Errorf("agent calls (-want +got):\n%s", diff)
	}
}

// TestServer_life follows the worked example of block.md appendix F, without its local
// attach.
func TestServer_life(t *testing.T) {
	b := newBench(t)
	resp, err := b.CreateVolume(t.Context(), b.createRequest("pvc-1"))
	if err != nil {
		t.Fatal(err)
	}
	wantCalls(t, b.agent, "CreateVolume g1", "ExportVolume g2")
	id := resp.Volume.VolumeId
	if want := b.name + "/nvmeof-tcp/lvm-lv/vg0/" + b.name + "pvc-1"; id != want {
		t.Errorf("volume ID = %s, want %s", id, want)
	}
	nqn := settings.TargetPrefix + "vg0." + b.name + "pvc-1"
	host, port, _ := strings.Cut(b.agent.address, ":")
	_ = port // the export listens on the protocol's own port
	if diff := cmp.Diff(map[string]string{
		"target_id": nqn, "address": host, "port": "4420",
		"pillar-csi.bhyoo.com/protocol-type":                 "nvmeof-tcp",
		"pillar-csi.bhyoo.com/volume-ref":                    nqn,
		"pillar-csi.bhyoo.com/nvmeof-max-data-transfer-size": "4194304",
		"pillar-csi.bhyoo.com/fs-type":                       "ext4",
	}, resp.Volume.VolumeContext); diff != "" {
		t.Errorf("volume context (-want +got):\n%s", diff)
	}

	wantCode(t, "publish w1", b.publish(id, "w1", writer), 0, "")
	wantCalls(t, b.agent, "AllowInitiator g3")
	wantCode(t, "publish w1 again", b.publish(id, "w1", writer), 0, "")
	wantCalls(t, b.agent, "AllowInitiator g3")
	wantCode(t, "publish w2", b.publish(id, "w2", writer), csiserve.FailedPrecondition, "is published to another node")
	wantCode(t, "delete while published", b.delete(id), csiserve.FailedPrecondition, "unpublish it first")
	wantCalls(t, b.agent)

	wantCode(t, "unpublish", b.unpublish(id, b.name+"w1"), 0, "")
	wantCalls(t, b.agent, "DenyInitiator g4")
	wantCode(t, "unpublish again", b.unpublish(id, b.name+"w1"), 0, "")
	wantCalls(t, b.agent)
	wantCode(t, "publish w2", b.publish(id, "w2", writer), 0, "")
	wantCode(t, "unpublish all", b.unpublish(id, ""), 0, "")
	wantCalls(t, b.agent, "AllowInitiator g6", "DenyInitiator g7")

	wantCode(t, "delete", b.delete(id), 0, "")
	wantCalls(t, b.agent, "UnexportVolume g9", "DeleteVolume g9")
	wantCode(t, "delete again", b.delete(id), 0, "")
	if v := b.state(b.name + "pvc-1"); v != nil {
		t.Errorf("record is left: %v", v.Status)
	}
	if volumes, exports, _ := b.agent.have(); len(volumes)+len(exports) > 0 {
		t.Errorf("left on the agent: %v %v", volumes, exports)
	}
}

func TestServer_CreateVolume_retries(t *testing.T) {
	b := newBench(t)
	req := b.createRequest("pvc-r")
	b.agent.set(func(a *fakeAgent) { a.fail["ExportVolume"] = errors.New("configfs is gone") })
	for range 3 {
		_, err := b.CreateVolume(t.Context(), req)
		wantCode(t, "CreateVolume", err, csiserve.Internal, "configfs is gone")
	}
	wantCalls(t, b.agent, "CreateVolume g1", "ExportVolume g2", "ExportVolume g2", "ExportVolume g2")
	v := b.state(req.Name)
	if v.Status.Phase != v1alpha1.PhaseCreatePartial || v.Status.BackendDevicePath == "" || v.Status.PartialFailure == nil {
		t.Errorf("status after failed export = %+v", v.Status)
	}
	wantCode(t, "publish", b.publish(v.Spec.VolumeID, "w1", writer), csiserve.FailedPrecondition, "cannot publish volume")
	b.agent.set(func(a *fakeAgent) { a.fail = map[string]error{} })
	if _, err := b.CreateVolume(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	v = b.state(req.Name)
	if v.Status.Phase != v1alpha1.PhaseReady || v.Status.BackendDevicePath != "" || v.Status.PartialFailure != nil {
		t.Errorf("status after retry = %+v", v.Status)
	}
	b.agent.take()
	if _, err := b.CreateVolume(t.Context(), req); err != nil {
		t.Errorf("CreateVolume again: %v", err)
	}
	wantCalls(t, b.agent)
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: 2 << 30}
	_, err := b.CreateVolume(t.Context(), req)
	wantCode(t, "CreateVolume larger", err, csiserve.AlreadyExists, "")
	b.agent.set(func(a *fakeAgent) { a.fail["DeleteVolume"] = errors.New("device is open") })
	wantCode(t, "delete", b.delete(v.Spec.VolumeID), csiserve.Internal, "device is open")
	_, err = b.CreateVolume(t.Context(), b.createRequest("pvc-r"))
	wantCode(t, "create while deleting", err, csiserve.Aborted, "is being deleted")
	b.agent.set(func(a *fakeAgent) { a.fail = map[string]error{} })
	b.agent.take()
	wantCode(t, "delete again", b.delete(v.Spec.VolumeID), 0, "")
	wantCalls(t, b.agent, "UnexportVolume g3", "DeleteVolume g3")
}

func TestServer_CreateVolume_unavailable(t *testing.T) {
	b := newBench(t)
	b.agent.set(func(a *fakeAgent) { a.fail["HealthCheck"] = agentrpc.ErrUnavailable })
	req := b.createRequest("pvc-u")
	_, err := b.CreateVolume(t.Context(), req)
	wantCode(t, "CreateVolume", err, csiserve.Unavailable, "agent "+b.name)
	if v := b.state(req.Name); v != nil {
		t.Errorf("a record was left: %v", v.Spec)
	}
	b.agent.set(func(a *fakeAgent) { a.fail, a.gated = map[string]error{}, true })
	kicked := ""
	b.gated = func(agent string) { kicked = agent }
	_, err = b.CreateVolume(t.Context(), req)
	wantCode(t, "CreateVolume gated", err, csiserve.Unavailable, "export restore pending")
	if kicked != b.name {
		t.Errorf("gated agent told = %q, want %q", kicked, b.name)
	}
	req = b.createRequest("pvc-big")
	req.CapacityRange.RequiredBytes = 100 << 30
	_, err = b.CreateVolume(t.Context(), req)
	wantCode(t, "CreateVolume too big", err, csiserve.ResourceExhausted, "")
}

func TestServer_CreateVolume_refuses(t *testing.T) {
	b := newBench(t)
	b.claim("odd-"+b.name, map[string]string{v1alpha1.KeyPrefix + "fs-override": "x"})
	b.claim("acl-"+b.name, map[string]string{v1alpha1.ProtocolKey: "nvmeofTcp: {acl: false}"})
	block := &csi.VolumeCapability{AccessMode: mount(writer).AccessMode}
	pvc := func(name string) func(*csi.CreateVolumeRequest) {
		return func(r *csi.CreateVolumeRequest) {
			r.Parameters[settings.PVCNameKey], r.Parameters[settings.PVCNamespaceKey] = name, "default"
		}
	}
	tests := map[string]struct {
		change   func(*csi.CreateVolumeRequest)
		code     csiserve.Code
		fragment string
	}{
		"no name":             {func(r *csi.CreateVolumeRequest) { r.Name = "" }, csiserve.InvalidArgument, "name"},
		"slash in name":       {func(r *csi.CreateVolumeRequest) { r.Name = "a/b" }, csiserve.InvalidArgument, "name"},
		"name LVM reserves":   {func(r *csi.CreateVolumeRequest) { r.Name = "x_tdata" }, csiserve.InvalidArgument, "name"},
		"no capabilities":     {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = nil }, csiserve.InvalidArgument, "volume_capabilities"},
		"no access type":      {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = []*csi.VolumeCapability{block} }, csiserve.InvalidArgument, "access type"},
		"many writers":        {func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode.Mode = 5 }, csiserve.InvalidArgument, "MULTI_NODE_MULTI_WRITER"},
		"limit below request": {func(r *csi.CreateVolumeRequest) { r.CapacityRange.LimitBytes = 1 }, csiserve.InvalidArgument, "limit_bytes"},
		"content source": {
			func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} },
			csiserve.InvalidArgument, "volume_content_source is not supported",
		},
		"unknown parameter": {
			func(r *csi.CreateVolumeRequest) { r.Parameters[v1alpha1.KeyPrefix+"acl-enabled"] = "x" },
			csiserve.InvalidArgument, `unsupported StorageClass parameter "pillar-csi.bhyoo.com/acl-enabled"`,
		},
		"class and store": {
			func(r *csi.CreateVolumeRequest) { r.Parameters[v1alpha1.StoreRefKey] = b.name },
			csiserve.InvalidArgument, "cannot stand beside",
		},
		"class unknown": {
			func(r *csi.CreateVolumeRequest) { r.Parameters[v1alpha1.StorageClassKey] = "none" },
			csiserve.FailedPrecondition, "(named via pillar-csi.bhyoo.com/storage-class) not found",
		},
		"claim unknown":       {pvc("nobody"), csiserve.FailedPrecondition, "(named via csi.storage.k8s.io/pvc/name) not found"},
		"odd annotation":      {pvc("odd-" + b.name), csiserve.InvalidArgument, "unsupported PVC annotation"},
		"structural override": {pvc("acl-" + b.name), csiserve.InvalidArgument, "nvmeofTcp.acl is structural and cannot be set per volume"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req := b.createRequest("pvc-x")
			test.change(req)
			_, err := b.CreateVolume(t.Context(), req)
			wantCode(t, "CreateVolume", err, test.code, test.fragment)
		})
	}
	wantCalls(t, b.agent)
}

func TestServer_ControllerPublishVolume_refuses(t *testing.T) {
	b := newBench(t)
	id := b.made("pvc-p")
	wantCode(t, "unknown node", b.publish(id, "w9", writer), csiserve.NotFound, fmt.Sprintf("CSINode %q not found", b.name+"w9"))
	wantCode(t, "unknown volume", b.publish(id+"x", "w1", writer), csiserve.NotFound, "does not exist")
	wantCode(t, "malformed volume", b.publish("x", "w1", writer), csiserve.NotFound, "does not exist")
	other := strings.Replace(id, "nvmeof-tcp", "iscsi", 1)
	wantCode(t, "contradicting ID", b.publish(other, "w1", writer), csiserve.FailedPrecondition, "contradicts")
	wantCode(t, "reader w1", b.publish(id, "w1", reader), 0, "")
	wantCode(t, "reader w2", b.publish(id, "w2", reader), 0, "")
	wantCode(t, "writer w1", b.publish(id, "w1", writer), csiserve.AlreadyExists, "")

	b.agent.set(func(a *fakeAgent) { a.fail["DenyInitiator"] = errors.New("session is stuck") })
	wantCode(t, "unpublish w1", b.unpublish(id, b.name+"w1"), csiserve.Internal, "session is stuck")
	wantCode(t, "publish while revoking", b.publish(id, "w1", reader), csiserve.Aborted, "revoked")
	pa := &v1alpha1.PillarAgent{}
	if err := b.api.Get(t.Context(), client.ObjectKey{Name: b.name}, pa); err != nil {
		t.Fatal(err)
	}
	if err := b.api.Delete(t.Context(), pa); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "unpublish without agent", b.unpublish(id, b.name+"w1"), csiserve.FailedPrecondition, "not found")
	wantCode(t, "publish without agent", b.publish(id, "w2", reader), csiserve.NotFound, "PillarAgent")
	if v := b.state(b.name + "pvc-p"); len(v.Status.PublishedNodes) != 2 {
		t.Errorf("published nodes = %v, want both kept", v.Status.PublishedNodes)
	}
}

// TestServer_recordWithoutSettings resumes a record somebody damaged: nothing is guessed.
func TestServer_recordWithoutSettings(t *testing.T) {
	b := newBench(t)
	for name, phase := range map[string]v1alpha1.Phase{"provisioning": "", "partial": v1alpha1.PhaseCreatePartial} {
		v := &v1alpha1.PillarVolumeState{
			ObjectMeta: metav1.ObjectMeta{Name: b.name + name},
			Spec: v1alpha1.PillarVolumeStateSpec{
				VolumeID: b.name + "/nvmeof-tcp/lvm-lv/vg0/" + b.name + name, AgentVolumeID: "vg0/" + b.name + name,
				AgentRef: b.name, BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp",
			},
		}
		b.create(v)
		v.Status.Phase = phase
		if err := b.api.Status().Update(t.Context(), v); err != nil {
			t.Fatal(err)
		}
		_, err := b.CreateVolume(t.Context(), b.createRequest(name))
		wantCode(t, name, err, csiserve.Internal, "has no resolved settings")
	}
	wantCalls(t, b.agent)
}
