package reconcile

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// TestSteady reconciles a store, a CHAP protocol and a class that are Ready again and
// again: no write, no event, and nothing timed but the look at the Secret. Another
// generation moves observedGeneration and no transition time.
func TestSteady(t *testing.T) {
	b := newBench(t)
	agent := fullAgent()
	agent.Name, agent.Spec.External = b.name, &v1alpha1.ExternalAgent{Address: "192.0.2.1", Port: 9500}
	b.create(agent)
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: b.name}, StringData: map[string]string{"username": "node", "password": "123456789012"}})
	b.create(b.chapProtocol(v1alpha1.AuthCHAP))
	store := &v1alpha1.PillarStore{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarStoreSpec{
		AgentRef: b.name, Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0", ThinPool: "tp0"}},
	}}
	b.create(store)
	nvme := &v1alpha1.PillarProtocol{ // classes over iSCSI are for a later version
		ObjectMeta: metav1.ObjectMeta{Name: b.name + "-nvme"},
		Spec:       v1alpha1.PillarProtocolSpec{Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}},
		Status:     v1alpha1.PillarProtocolStatus{Conditions: []metav1.Condition{met(v1alpha1.Ready)}},
	}
	b.create(nvme)
	b.create(&v1alpha1.PillarStorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarStorageClassSpec{StoreRef: b.name, ProtocolRef: nvme.Name}})
	all := []reconcile.Reconciler{&stores{b.kube}, &protocols{b.kube}, &classes{b.kube}}
	for range 2 {
		for _, r := range all {
			b.run(r)
		}
	}
	b.wantClass("True/Created", "True/AllConditionsMet", "")
	b.wire.take()
	b.heard()
	for range 3 {
		for i, want := range []time.Duration{0, poll, 0} {
			if next := b.run(all[i]).RequeueAfter; next != want {
				t.Errorf("%T looks again in %s, want %s", all[i], next, want)
			}
		}
	}
	if writes, told := b.wire.take(), b.heard(); len(writes)+len(told) > 0 {
		t.Errorf("%d writes and %d events where nothing changed: %v %v", len(writes), len(told), writes, told)
	}
	b.get(store, b.name)
	before := store.DeepCopy()
	b.edit(store, func() { store.Spec.Backend.LVM.ProvisioningMode = "thin" })
	b.run(all[0])
	if writes := b.wire.take(); len(writes) != 1 {
		t.Errorf("writes = %v, want one for the new generation", writes)
	}
	b.get(store, b.name)
	for i := range before.Status.Conditions {
		before.Status.Conditions[i].ObservedGeneration = store.Generation
	}
	if diff := cmp.Diff(before.Status, store.Status); diff != "" || store.Generation == before.Generation {
		t.Errorf("generation %d, status (-want +got):\n%s", store.Generation, diff)
	}
}

// TestFinish_late: a status computed from an old read replaces no newer one; the object
// is looked at again at once.
func TestFinish_late(t *testing.T) {
	b := newBench(t)
	store := b.lvmStore(b.name, b.name)
	b.create(store)
	stale := store.DeepCopy()
	b.ready(store, &store.Status.Conditions)
	s := begin(stale, &stale.Status.Conditions)
	s.no(v1alpha1.Ready, v1alpha1.ReasonConditionsNotMet, "seen long ago")
	result, err := b.finish(t.Context(), s, 0)
	if err != nil || result.RequeueAfter != late {
		t.Errorf("finish = %+v, %v, want another look in %s", result, err, late)
	}
	b.get(store, b.name)
	if got := shown(store.Status.Conditions, v1alpha1.Ready); got != "True/Test" || len(b.heard()) > 0 {
		t.Errorf("Ready = %s, want the newer one and no event", got)
	}
}

// TestStatus_setTwice: a condition that is set twice and ends as it was has not moved, and
// costs no write.
func TestStatus_setTwice(t *testing.T) {
	pa := &v1alpha1.PillarAgent{}
	was := metav1.Condition{Type: v1alpha1.AgentConnected, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonHealthCheckFailed,
		Message: "refused", LastTransitionTime: metav1.NewTime(epoch)}
	pa.Status.Conditions = []metav1.Condition{was}
	s := begin(pa, &pa.Status.Conditions)
	s.yes(was.Type, v1alpha1.ReasonDialed, "answers")
	s.no(was.Type, was.Reason, was.Message)
	if diff := cmp.Diff([]metav1.Condition{was}, pa.Status.Conditions); diff != "" {
		t.Errorf("a condition that ends as it was (-want +got):\n%s", diff)
	}
}

// TestStatus_changes: which new conditions become events.
func TestStatus_changes(t *testing.T) {
	type set struct{ kind, status, reason string }
	tests := map[string]struct {
		before, now []set
		want        []string
	}{
		"nothing":            {[]set{{"Ready", "True", "AllConditionsMet"}}, []set{{"Ready", "True", "AllConditionsMet"}}, nil},
		"comes up":           {nil, []set{{"AgentReady", "True", "AgentReady"}, {"Ready", "True", "AllConditionsMet"}}, []string{"AgentReady", "AllConditionsMet"}},
		"cause alone":        {nil, []set{{"AgentConnected", "False", "HealthCheckFailed"}, {"ExportsReady", "Unknown", "AgentNotConnected"}, {"Ready", "False", "HealthCheckFailed"}}, []string{"HealthCheckFailed"}},
		"three by one cause": {nil, []set{{"AgentReady", "False", "TargetNotFound"}, {"PoolDiscovered", "False", "TargetNotFound"}, {"Ready", "False", "TargetNotFound"}}, []string{"TargetNotFound"}},
		"Ready alone":        {[]set{{"Ready", "True", "AllConditionsMet"}}, []set{{"Ready", "False", "ConditionsNotMet"}}, []string{"ConditionsNotMet"}},
		"deletion":           {nil, []set{{"AgentConnected", "False", "HealthCheckFailed"}, {"Ready", "False", "DeletionBlocked"}}, []string{"HealthCheckFailed", "DeletionBlocked"}},
		"another reason":     {[]set{{"AgentConnected", "True", "Dialed"}}, []set{{"AgentConnected", "True", "AgentDegraded"}}, []string{"AgentDegraded"}},
		"external is not":    {nil, []set{{"NodeExists", "Unknown", "ExternalMode"}}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			obj := &v1alpha1.PillarStore{}
			for _, c := range tc.before {
				begin(obj, &obj.Status.Conditions).set(c.kind, metav1.ConditionStatus(c.status), c.reason, "")
			}
			s := begin(obj, &obj.Status.Conditions)
			for _, c := range tc.now {
				s.set(c.kind, metav1.ConditionStatus(c.status), c.reason, "")
			}
			var got []string
			for _, c := range s.changes() {
				got = append(got, c.Reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
		})
	}
}
