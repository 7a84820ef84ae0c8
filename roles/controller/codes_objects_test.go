package controller

import (
	"context"
	"errors"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// adoptedRecord writes the record of an adopted logical volume.
func (b *bench) adoptedRecord(acquired bool) string {
	const uuid = "AbCdEf-0123-4567-89ab-cdef-0123-456789"
	v := &v1alpha1.PillarVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: b.name + b.volume},
		Spec: v1alpha1.PillarVolumeStateSpec{
			VolumeID: b.name + "/nvmeof-tcp/lvm-lv/vg0/Data_" + b.volume, AgentVolumeID: "vg0/Data_" + b.volume,
			AgentRef: b.name, BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp",
			LVMSource: &v1alpha1.LVMSource{
				VolumeGroup: "vg0", LogicalVolume: "Data_" + b.volume, VolumeGroupUUID: uuid, LogicalVolumeUUID: uuid, PreserveOriginal: true,
			},
		},
	}
	b.create(v)
	b.edit(func(s *v1alpha1.PillarVolumeStateStatus) {
		s.Phase, s.ImportAcquired = v1alpha1.PhaseReady, acquired
		s.ExportSpec = &v1alpha1.ExportSpec{BindAddress: "127.0.0.1"}
	})
	return v.Spec.VolumeID
}

// second makes a store, a protocol and their class beside the bench's own and answers
// their name.
func (b *bench) second(p v1alpha1.Protocol, backend v1alpha1.Backend) string {
	meta := metav1.ObjectMeta{Name: b.name + b.volume + "-other"}
	b.create(&v1alpha1.PillarProtocol{ObjectMeta: meta, Spec: v1alpha1.PillarProtocolSpec{Protocol: p}})
	b.create(&v1alpha1.PillarStore{ObjectMeta: meta, Spec: v1alpha1.PillarStoreSpec{AgentRef: b.name, Backend: backend}})
	b.create(&v1alpha1.PillarStorageClass{ObjectMeta: meta, Spec: v1alpha1.PillarStorageClassSpec{StoreRef: meta.Name, ProtocolRef: meta.Name}})
	return meta.Name
}

var vg0 = v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0"}}

// of asks for a volume of another class.
func (b *bench) of(class string, caps ...*csi.VolumeCapability) error {
	req := b.createRequest(b.volume)
	req.Parameters = map[string]string{v1alpha1.StorageClassKey: class}
	if len(caps) > 0 {
		req.VolumeCapabilities = caps
	}
	_, err := b.CreateVolume(b.t.Context(), req)
	return err
}

// withSecret asks for a CHAP volume whose Secret has these keys; nil is no Secret.
func withSecret(data map[string]string) func(b *bench) error {
	return func(b *bench) error {
		if data != nil {
			b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: b.name + b.volume}, StringData: data})
		}
		auth := &v1alpha1.ISCSIAuth{Method: v1alpha1.AuthCHAP, SecretRef: &v1alpha1.SecretRef{Name: b.name + b.volume}}
		return b.of(b.second(v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{ACL: true, Auth: auth}}, vg0))
	}
}

// overNFS asks for a dataset.
func overNFS(caps ...*csi.VolumeCapability) func(b *bench) error {
	return func(b *bench) error {
		for _, c := range caps {
			if m := c.GetMount(); m != nil {
				m.FsType = ""
			}
		}
		dataset := v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", VolumeType: v1alpha1.ZFSVolumeTypeDataset}}
		return b.of(b.second(v1alpha1.Protocol{NFS: &v1alpha1.NFS{}}, dataset), caps...)
	}
}

// thinWithoutPool asks for a thin logical volume of a store that names no pool for it.
func thinWithoutPool(b *bench) error {
	return b.of(b.second(v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}, v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{
		VolumeGroup: "vg0", ProvisioningMode: v1alpha1.ProvisioningThin,
	}}))
}

func incompatible(b *bench) error {
	return b.of(b.second(v1alpha1.Protocol{NFS: &v1alpha1.NFS{}}, vg0))
}

// address sets what the agent's address resolved to.
func (b *bench) address(resolved string) {
	b.spoiled = true
	pa := &v1alpha1.PillarAgent{ObjectMeta: b.named()}
	if err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(pa), pa); err != nil {
		b.t.Fatal(err)
	}
	pa.Status.ResolvedAddress = resolved
	if err := b.api.Status().Update(b.t.Context(), pa); err != nil {
		b.t.Fatal(err)
	}
}

// layoutMismatch asks for a volume of a store the reconciler found elsewhere.
func layoutMismatch(b *bench) error {
	b.spoiled = true
	store := &v1alpha1.PillarStore{ObjectMeta: b.named()}
	if err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(store), store); err != nil {
		b.t.Fatal(err)
	}
	meta.SetStatusCondition(&store.Status.Conditions, metav1.Condition{
		Type: v1alpha1.PoolDiscovered, Status: metav1.ConditionFalse,
		Reason: v1alpha1.ReasonBackendLayoutMismatch, Message: "store has thin pool a, agent has b",
	})
	if err := b.api.Status().Update(b.t.Context(), store); err != nil {
		b.t.Fatal(err)
	}
	return asked(func(*bench, *csi.CreateVolumeRequest) {})(b)
}

// collision asks for c in pool vg0.b while b.c in pool vg0 is there.
func collision(b *bench) error {
	b.made(".b.c")
	class := b.second(v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}, v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0." + b.name + ".b"}})
	req := b.createRequest("")
	req.Name, req.Parameters = "c", map[string]string{v1alpha1.StorageClassKey: class}
	_, err := b.CreateVolume(b.t.Context(), req)
	return err
}

func forClaim(r *csi.CreateVolumeRequest, claim string) {
	r.Parameters[settings.PVCNameKey], r.Parameters["csi.storage.k8s.io/pvc/namespace"] = claim, "default"
}

// otherClaim makes a claim's volume again after the claim was made anew under its name.
func otherClaim(b *bench) error {
	req := b.createRequest(b.volume)
	forClaim(req, "again-"+b.name)
	first := b.claim("again-"+b.name, nil)
	if _, err := b.CreateVolume(b.t.Context(), req); err != nil {
		b.t.Fatal(err)
	}
	first.Finalizers = nil
	if err := b.api.Update(b.t.Context(), first); err != nil {
		b.t.Fatal(err)
	}
	b.drop(first)
	b.claim("again-"+b.name, nil)
	_, err := b.CreateVolume(b.t.Context(), req)
	return err
}

// resized asks for a volume that is there, with another size.
func resized(required, limit int64) func(b *bench) error {
	return asked(func(b *bench, r *csi.CreateVolumeRequest) {
		b.made(b.volume)
		r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
	})
}

// changedUnder deletes and makes the record anew while the agent works for the first one.
func changedUnder(b *bench) error {
	b.agent.set(func(a *fakeAgent) {
		a.see = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			if _, ok := req.(*agentpb.CreateVolumeRequest); ok {
				v := b.state(b.name + b.volume)
				v.Finalizers = nil
				if err := b.api.Update(ctx, v); err != nil {
					return nil, err
				}
				if err := b.api.Delete(ctx, v); err != nil {
					return nil, err
				}
				next := &v1alpha1.PillarVolumeState{ObjectMeta: metav1.ObjectMeta{Name: v.Name}, Spec: v.Spec}
				if err := b.api.Create(ctx, next); err != nil {
					return nil, err
				}
			}
			return handler(ctx, req)
		}
	})
	return asked(func(*bench, *csi.CreateVolumeRequest) {})(b)
}

// shrunk asks for a volume of which the agent says that it is smaller.
func shrunk(b *bench) error {
	b.agent.set(func(a *fakeAgent) {
		a.see = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			resp, err := handler(ctx, req)
			if made, ok := resp.(*agentpb.CreateVolumeResponse); ok && made != nil {
				made.SizeBytes = 4096
			}
			return resp, err
		}
	})
	return asked(func(*bench, *csi.CreateVolumeRequest) {})(b)
}

// unreachable asks for a volume whose agent tells nothing of the export it made.
func unreachable(b *bench) error {
	b.agent.set(func(a *fakeAgent) {
		a.see = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			resp, err := handler(ctx, req)
			if made, ok := resp.(*agentpb.ExportVolumeResponse); ok && made != nil {
				made.Export = nil
			}
			return resp, err
		}
	})
	return asked(func(*bench, *csi.CreateVolumeRequest) {})(b)
}

// refuseInitiator has the agent refuse to revoke one initiator.
func refuseInitiator(id string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if r, ok := req.(*agentpb.DenyInitiatorRequest); ok && r.InitiatorId == id {
			return nil, agentrpc.Status(errors.New("session is stuck"))
		}
		return handler(ctx, req)
	}
}
