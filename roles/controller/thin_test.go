package controller

import (
	"context"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/testing/protocmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentpb"
)

// B-77: the agent is told mode and pool, so that it can verify the layout. The mode is the
// last layer's.
func TestServer_CreateVolume_thin(t *testing.T) {
	t.Parallel()
	thin := &agentpb.LVMParameters{VolumeGroup: "vg0", ThinPool: "tp0", Mode: "thin"}
	linear := &agentpb.LVMParameters{VolumeGroup: "vg0", ThinPool: "tp0", Mode: "linear"}
	tests := map[string]struct {
		store, class string
		want         *agentpb.LVMParameters
	}{
		"thin store":            {"thin", "", thin},
		"linear class of it":    {"thin", "linear", linear},
		"linear store":          {"linear", "", linear},
		"thin class of it":      {"linear", "thin", thin},
		"store that says none":  {"", "", linear},
		"thin class of that":    {"", "thin", thin},
		"thin class, thin pool": {"thin", "thin", thin},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var mu sync.Mutex
			var got *agentpb.LVMParameters
			b.agent.set(func(a *fakeAgent) {
				a.see = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					if r, ok := req.(*agentpb.CreateVolumeRequest); ok {
						mu.Lock()
						defer mu.Unlock()
						got = r.GetParameters().GetLvm()
					}
					return handler(ctx, req)
				}
			})
			if err := b.of(b.thinClass(test.store, test.class)); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("the agent was asked for (-want +got):\n%s", diff)
			}
		})
	}
}

// thinClass makes a store with a thin pool and its class, each with a provisioning mode.
func (b *bench) thinClass(store, class string) string {
	name := b.second(v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}, v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{
		VolumeGroup: "vg0", ThinPool: "tp0", ProvisioningMode: store,
	}})
	if class == "" {
		return name
	}
	psc := &v1alpha1.PillarStorageClass{}
	if err := b.api.Get(b.t.Context(), types.NamespacedName{Name: name}, psc); err != nil {
		b.t.Fatal(err)
	}
	psc.Spec.Overrides = &v1alpha1.Overrides{Backend: &v1alpha1.BackendOverrides{LVM: &v1alpha1.LVMOverrides{ProvisioningMode: class}}}
	if err := b.api.Update(b.t.Context(), psc); err != nil {
		b.t.Fatal(err)
	}
	return name
}
