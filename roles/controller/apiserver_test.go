package controller

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/roles/controller/apiservertest"
)

func TestMain(m *testing.M) {
	if isChild() {
		os.Exit(runChild())
	}
	os.Exit(apiservertest.Main(m))
}

// bench is a CSI server on a real API server with one fake agent, and the objects of the
// samples under names of its own.
type bench struct {
	*Server
	t      *testing.T
	cfg    *rest.Config
	api    client.Client
	agent  *fakeAgent
	chance *chance
	name   string // of agent, store, protocol and class

	volume  string // what a row of a code table is about
	spoiled bool   // an object of the samples is not what it was
}

func newBench(t *testing.T) *bench {
	t.Helper()
	cfg := apiservertest.Config(t)
	scheme, err := Scheme()
	if err != nil {
		t.Fatal(err)
	}
	api, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	pool := &agents.Pool{}
	t.Cleanup(func() { pool.Close() })
	b := &bench{t: t, cfg: cfg, api: api, agent: startFakeAgent(t), chance: newChance(t), name: fmt.Sprintf("b%d", nextBench())}
	b.Server = NewServer(api, "default", pool, func(string) {}, zap.NewNop())
	b.samples()
	return b
}

var benches struct {
	sync.Mutex
	n int
}

func nextBench() int {
	benches.Lock()
	defer benches.Unlock()
	benches.n++
	return benches.n
}

// create puts an object on the API server until the test ends: a finalizer that nobody would
// remove must not leave it to the tests that follow.
func (b *bench) create(obj client.Object) {
	b.t.Helper()
	if err := b.api.Create(b.t.Context(), obj); err != nil {
		b.t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
	b.t.Cleanup(func() {
		free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		_ = b.api.Delete(context.Background(), obj)
		_ = b.api.Patch(context.Background(), obj, free) // gone already: nothing to free
	})
}

// samples makes agent, store, protocol and class as deploy/samples does, and two nodes.
func (b *bench) samples() {
	host, port, err := net.SplitHostPort(b.agent.address)
	if err != nil {
		b.t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		b.t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: b.name}
	pa := &v1alpha1.PillarAgent{ObjectMeta: meta, Spec: v1alpha1.PillarAgentSpec{
		External: &v1alpha1.ExternalAgent{Address: host, Port: int32(number)},
	}}
	b.create(pa)
	pa.Status.ResolvedAddress = b.agent.address
	if err := b.api.Status().Update(b.t.Context(), pa); err != nil {
		b.t.Fatal(err)
	}
	b.create(&v1alpha1.PillarStore{ObjectMeta: meta, Spec: v1alpha1.PillarStoreSpec{
		AgentRef: b.name, Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0"}},
	}})
	b.create(&v1alpha1.PillarProtocol{ObjectMeta: meta, Spec: v1alpha1.PillarProtocolSpec{
		Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{ACL: true}},
	}})
	b.create(&v1alpha1.PillarStorageClass{ObjectMeta: meta, Spec: v1alpha1.PillarStorageClassSpec{StoreRef: b.name, ProtocolRef: b.name}})
	for _, node := range []string{"w1", "w2"} {
		b.create(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
			Name: b.name + node, Annotations: map[string]string{v1alpha1.HostNQNAnnotation: "nqn.2014-08.org.nvmexpress:uuid:" + b.name + node},
		}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{}}})
	}
}

// claim makes a claim with annotations and answers its UID.
func (b *bench) claim(name string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	pvc := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}},
		},
	}
	b.create(pvc)
	return pvc
}

// state reads the volume's record; nil when there is none.
func (b *bench) state(name string) *v1alpha1.PillarVolumeState {
	b.t.Helper()
	v := &v1alpha1.PillarVolumeState{}
	err := b.api.Get(b.t.Context(), client.ObjectKey{Name: name}, v)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return v
}
