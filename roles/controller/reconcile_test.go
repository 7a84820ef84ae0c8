package controller

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// runController runs the whole role until the test ends, or until stop.
func (b *bench) runController() (stop func()) { return b.run(b.cfg, 0) }

// run is runController with a connection and a resync period of the test's own.
func (b *bench) run(api *rest.Config, period time.Duration) (stop func()) {
	return b.runAs(api, Config{Namespace: "default", period: period})
}

// runAs is runController with a connection and settings of the test's own.
func (b *bench) runAs(api *rest.Config, cfg Config) (stop func()) {
	b.t.Helper()
	dir, err := os.MkdirTemp("", "csi") // socket paths are short
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	cfg.CSIAddress, cfg.LeaderElect, cfg.HealthAddress, cfg.MetricsAddress = filepath.Join(dir, "s"), true, "0", "0"
	go func() { done <- Run(ctx, api, cfg, zap.NewNop()) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("Run: %v", err)
		}
		os.RemoveAll(dir)
	})
	b.t.Cleanup(stop)
	return stop
}

// eventually reads obj until ok says nothing is missing, or fails with what was.
func (b *bench) eventually(obj client.Object, ok func() string) {
	b.t.Helper()
	const patience = 20 * time.Second
	missing := ""
	for start := time.Now(); time.Since(start) < patience; time.Sleep(50 * time.Millisecond) {
		if err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(obj), obj); err != nil {
			missing = err.Error()
			continue
		}
		if missing = ok(); missing == "" {
			return
		}
	}
	b.t.Fatalf("%T %s after %s: %s", obj, obj.GetName(), patience, missing)
}

func (b *bench) gone(obj client.Object) {
	b.t.Helper()
	for range 200 {
		err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(obj), obj)
		if client.IgnoreNotFound(err) == nil && err != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.t.Fatalf("%T %s is still there: %v", obj, obj.GetName(), obj.GetFinalizers())
}

// has tells what a condition lacks.
func has(conditions *[]metav1.Condition, kind string, status metav1.ConditionStatus, reason string) func() string {
	return func() string {
		c := meta.FindStatusCondition(*conditions, kind)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Sprintf("%s = %+v, want %s/%s", kind, c, status, reason)
		}
		return ""
	}
}

// kinds are the four objects a user writes, on a node of the cluster.
type kinds struct {
	node     *corev1.Node
	agent    *v1alpha1.PillarAgent
	store    *v1alpha1.PillarStore
	protocol *v1alpha1.PillarProtocol
	class    *v1alpha1.PillarStorageClass
}

// objects names the objects after the bench with an r in front, beside its own.
func (b *bench) objects() kinds {
	b.drop(&v1alpha1.PillarAgent{ObjectMeta: b.named()}) // that of the samples: an agent has one PillarAgent
	name := "r" + b.name
	_, port, _ := net.SplitHostPort(b.agent.address)
	number, _ := strconv.Atoi(port)
	p := int32(number)
	o := metav1.ObjectMeta{Name: name}
	return kinds{
		node:  &corev1.Node{ObjectMeta: o},
		agent: &v1alpha1.PillarAgent{ObjectMeta: o, Spec: v1alpha1.PillarAgentSpec{NodeRef: &v1alpha1.NodeRef{Name: name, AddressSelector: "127.0.0.0/8", Port: &p}}},
		store: &v1alpha1.PillarStore{ObjectMeta: o, Spec: v1alpha1.PillarStoreSpec{
			AgentRef: name, Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0"}},
		}},
		protocol: &v1alpha1.PillarProtocol{ObjectMeta: o, Spec: v1alpha1.PillarProtocolSpec{
			Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{ACL: true}},
		}},
		class: &v1alpha1.PillarStorageClass{ObjectMeta: o, Spec: v1alpha1.PillarStorageClassSpec{
			StoreRef: name, ProtocolRef: name, Filesystem: &v1alpha1.Filesystem{FSType: "xfs"},
		}},
	}
}

// TestRun takes the four kinds from nothing to Ready, provisions through them, and takes
// them away again in the supported order.
func TestRun(t *testing.T) {
	b := newBench(t)
	b.agent.set(func(a *fakeAgent) { a.gated = true; a.fail["HealthCheck"] = errors.New("starting") })
	k := b.objects()
	b.create(k.agent)
	b.runController()
	b.eventually(k.agent, has(&k.agent.Status.Conditions, "NodeExists", "False", "NodeNotFound"))
	b.create(k.node)
	bare := k.node.DeepCopy()
	k.node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.9.9.9"}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
	}
	if err := b.api.Status().Patch(t.Context(), k.node, client.MergeFrom(bare)); err != nil {
		t.Fatal(err)
	}
	b.eventually(k.node, func() string {
		if k.node.Labels[v1alpha1.AgentNodeLabel] != "true" {
			return "label agent-node"
		}
		return ""
	})
	b.eventually(k.agent, has(&k.agent.Status.Conditions, "AgentConnected", "False", "HealthCheckFailed"))
	b.eventually(k.agent, has(&k.agent.Status.Conditions, "ExportsReady", "Unknown", "AgentNotConnected"))
	b.create(k.class)
	b.eventually(k.class, has(&k.class.Status.Conditions, "Ready", "False", "PoolNotFound"))
	b.create(k.store)
	b.create(k.protocol)
	b.eventually(k.store, has(&k.store.Status.Conditions, "AgentReady", "False", "TargetNotReady"))
	b.agent.set(func(a *fakeAgent) { a.fail = map[string]error{} })
	b.allReady(k)
	if calls := b.agent.take(); len(calls) == 0 || calls[0] != "ReconcileState complete=true items=0" {
		t.Errorf("agent calls = %v, want the complete request first", calls)
	}
	sc := b.generated(k)
	b.blocked(k)
	b.takeDown(k, sc)
}

func (b *bench) allReady(k kinds) {
	b.t.Helper()
	b.eventually(k.agent, has(&k.agent.Status.Conditions, "Ready", "True", "AllConditionsMet"))
	b.eventually(k.store, has(&k.store.Status.Conditions, "Ready", "True", "AllConditionsMet"))
	b.eventually(k.class, has(&k.class.Status.Conditions, "Ready", "True", "AllConditionsMet"))
	b.eventually(k.protocol, func() string {
		if k.protocol.Status.StorageClassCount != 1 || len(k.protocol.Status.ActiveAgents) != 1 {
			return fmt.Sprintf("bindings = %+v", k.protocol.Status)
		}
		return has(&k.protocol.Status.Conditions, "Ready", "True", "ProtocolConfigured")()
	})
	if c := k.store.Status.Capacity; c == nil || c.Available.String() != "8Gi" || c.Used.String() != "2Gi" {
		b.t.Errorf("capacity = %+v, want 8Gi available, 2Gi used", c)
	}
	if k.agent.Status.ResolvedAddress != b.agent.address || k.agent.Status.AgentVersion != "test" {
		b.t.Errorf("agent status = %+v", k.agent.Status)
	}
}

// generated checks the StorageClass, and that a deleted one comes back.
func (b *bench) generated(k kinds) *storagev1.StorageClass {
	b.t.Helper()
	sc := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: k.class.Name}}
	b.eventually(sc, func() string { return "" })
	want := map[string]string{v1alpha1.StorageClassKey: k.class.Name, settings.FSTypeKey: "xfs"}
	if diff := cmp.Diff(want, sc.Parameters); diff != "" || sc.Provisioner != v1alpha1.DriverName || !metav1.IsControlledBy(sc, k.class) {
		b.t.Errorf("StorageClass = %+v, parameters (-want +got):\n%s", sc, diff)
	}
	first := sc.UID
	if err := b.api.Delete(b.t.Context(), sc); err != nil {
		b.t.Fatal(err)
	}
	b.eventually(sc, func() string {
		if sc.UID == first {
			return "is the old one"
		}
		return ""
	})
	b.expansion(k, sc)
	return sc
}

// expansion checks that claims may grow unless the class says that they may not.
func (b *bench) expansion(k kinds, sc *storagev1.StorageClass) {
	b.t.Helper()
	for _, set := range []*bool{nil, new(false), nil} {
		if err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(k.class), k.class); err != nil {
			b.t.Fatal(err)
		}
		old := k.class.DeepCopy()
		k.class.Spec.StorageClass.AllowVolumeExpansion = set
		if err := b.api.Patch(b.t.Context(), k.class, client.MergeFrom(old)); err != nil {
			b.t.Fatal(err)
		}
		want := set == nil
		b.eventually(sc, func() string {
			if sc.AllowVolumeExpansion == nil || *sc.AllowVolumeExpansion != want {
				return fmt.Sprintf("allowVolumeExpansion is %v, want %v", sc.AllowVolumeExpansion, want)
			}
			return ""
		})
	}
}

// blocked checks that a volume holds store, class and agent back.
func (b *bench) blocked(k kinds) {
	b.t.Helper()
	req := b.createRequest("pvc-run")
	req.Parameters = map[string]string{v1alpha1.StorageClassKey: k.class.Name}
	if _, err := b.CreateVolume(b.t.Context(), req); err != nil {
		b.t.Fatal(err)
	}
	for _, obj := range []client.Object{k.store, k.agent} {
		if err := b.api.Delete(b.t.Context(), obj); err != nil {
			b.t.Fatal(err)
		}
	}
	b.eventually(k.store, has(&k.store.Status.Conditions, "Ready", "False", "DeletionBlocked"))
	b.eventually(k.agent, has(&k.agent.Status.Conditions, "Ready", "False", "DeletionBlocked"))
	c := meta.FindStatusCondition(k.agent.Status.Conditions, "Ready")
	if !strings.HasPrefix(c.Message, "Deletion blocked: ") || !strings.Contains(c.Message, "volume "+req.Name) {
		b.t.Errorf("message = %q, want the volume named", c.Message)
	}
	id := b.state(req.Name).Spec.VolumeID
	wantCode(b.t, "delete", b.delete(id), csiserve.Code(0), "")
}

// takeDown deletes in the supported order and wants everything gone, the label too.
func (b *bench) takeDown(k kinds, sc *storagev1.StorageClass) {
	b.t.Helper()
	for _, obj := range []client.Object{k.class, k.protocol} {
		if err := b.api.Delete(b.t.Context(), obj); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, obj := range []client.Object{k.class, sc, k.protocol, k.store, k.agent} {
		b.gone(obj)
	}
	b.eventually(k.node, func() string {
		if _, ok := k.node.Labels[v1alpha1.AgentNodeLabel]; ok {
			return "label agent-node is left"
		}
		return ""
	})
}

// TestRun_gate restarts the agent under volumes: the complete request carries what the
// records say, at their generations.
func TestRun_gate(t *testing.T) {
	b := newBench(t)
	id := b.made("pvc-g")
	wantCode(t, "publish", b.publish(id, "w1", writer), 0, "")
	b.agent.set(func(a *fakeAgent) { a.gated = true; a.exports = map[string]transport.Export{} })
	b.runController()
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	b.eventually(pa, has(&pa.Status.Conditions, "ExportsReady", "True", "ExportsServing"))
	b.eventually(pa, has(&pa.Status.Conditions, "NodeExists", "Unknown", "ExternalMode"))
	b.eventually(pa, has(&pa.Status.Conditions, "AgentConnected", "True", "Dialed"))
	wantCalls(t, b.agent, "AllowInitiator g3", "ReconcileState complete=true items=1")
	b.agent.mu.Lock()
	e := b.agent.exports["vg0/"+b.name+"pvc-g"]
	b.agent.mu.Unlock()
	if !e.ACL || len(e.Initiators) != 1 || e.Portal.Port != 4420 {
		t.Errorf("restored export = %+v, want the published node admitted on 4420", e)
	}
	v := b.state(b.name + "pvc-g")
	if c := meta.FindStatusCondition(v.Status.Conditions, "ExportReconciled"); c == nil || c.Reason != "Reconciled" || v.Status.PublicationGeneration != 3 {
		t.Errorf("record = %+v, want Reconciled at generation 3", v.Status)
	}
	wantCode(t, "unpublish", b.unpublish(id, ""), 0, "")
	wantCode(t, "delete", b.delete(id), 0, "")
}

// TestRun_agentRestart restarts the agent between two polls, and again while its object
// waits to be deleted: the new process gets its exports at once.
func TestRun_agentRestart(t *testing.T) {
	b := newBench(t)
	id := b.made("pvc-r")
	b.runController()
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	b.eventually(pa, has(&pa.Status.Conditions, "ExportsReady", "True", "ExportsServing"))
	for range 2 {
		b.agent.stop()
		b.eventually(pa, has(&pa.Status.Conditions, "ExportsReady", "Unknown", "AgentNotConnected"))
		v := b.state(b.name + "pvc-r")
		b.eventually(v, has(&v.Status.Conditions, "ExportReconciled", "False", "AgentUnavailable"))
		b.agent.set(func(a *fakeAgent) { a.gated = true })
		b.agent.serve(t)
		b.eventually(pa, has(&pa.Status.Conditions, "ExportsReady", "True", "ExportsServing"))
		b.eventually(v, has(&v.Status.Conditions, "ExportReconciled", "True", "Reconciled"))
		if err := b.api.Delete(t.Context(), pa); err != nil {
			t.Fatal(err)
		}
		b.eventually(pa, has(&pa.Status.Conditions, "Ready", "False", "DeletionBlocked"))
	}
	wantCode(t, "delete", b.delete(id), 0, "")
}

// TestRun_agentHangs: one agent that never answers holds up no other.
func TestRun_agentHangs(t *testing.T) {
	b := newBench(t)
	hang := make(chan struct{}, 100)
	b.agent.hang = hang
	b.runController()
	<-hang
	other := startFakeAgent(t)
	host, port, _ := net.SplitHostPort(other.address)
	number, _ := strconv.Atoi(port)
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name + "other"}, Spec: v1alpha1.PillarAgentSpec{
		External: &v1alpha1.ExternalAgent{Address: host, Port: int32(number)},
	}}
	b.create(pa)
	b.eventually(pa, has(&pa.Status.Conditions, "Ready", "True", "AllConditionsMet"))
}
