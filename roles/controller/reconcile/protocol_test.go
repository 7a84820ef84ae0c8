package reconcile

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// chapProtocol is an iSCSI protocol of the bench's name with a Secret of that name.
func (b *bench) chapProtocol(method string) *v1alpha1.PillarProtocol {
	return &v1alpha1.PillarProtocol{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarProtocolSpec{
		Protocol: v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{ACL: true, Auth: &v1alpha1.ISCSIAuth{Method: method, SecretRef: &v1alpha1.SecretRef{Name: b.name}}}},
	}}
}

// TestProtocols_secret: a Secret that cannot be used makes the protocol not Ready and
// names itself and the key (block.md B-261); no value is shown (B-9); a repaired one is
// found without a watch.
func TestProtocols_secret(t *testing.T) {
	b := newBench(t)
	r := &protocols{b.kube}
	p := b.chapProtocol(v1alpha1.AuthMutualCHAP)
	b.create(p)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: b.name}}
	steps := []struct {
		set   map[string]string // keys of the Secret; nil: no Secret
		ready string
		says  string
		next  time.Duration
	}{
		{nil, "False/AuthSecretInvalid", `Secret "default/` + b.name + `" does not exist; create it with the keys username, password, mutualUsername and mutualPassword`, notReady},
		{map[string]string{"username": "node"}, "False/AuthSecretInvalid", `key "password" is missing`, notReady},
		{map[string]string{"password": "marker-secret\n"}, "False/AuthSecretInvalid", `key "password" contains a newline`, notReady},
		{map[string]string{"password": "marker-secret", "mutualUsername": "t", "mutualPassword": "marker-secret"}, "False/AuthSecretInvalid", `key "mutualPassword" is the same`, notReady},
		{map[string]string{"mutualPassword": "marker-secret-2"}, "True/ProtocolConfigured", "iscsi is configured with MutualCHAP", poll},
		{map[string]string{"username": "NULL"}, "False/AuthSecretInvalid", `key "username" begins with NULL`, notReady},
	}
	for i, step := range steps {
		if i == 1 {
			b.create(secret)
		}
		if step.set != nil {
			b.edit(secret, func() { secret.StringData = step.set })
		}
		result := b.run(r)
		b.get(p, b.name)
		got, says := shown(p.Status.Conditions, v1alpha1.Ready), message(p.Status.Conditions, v1alpha1.Ready)
		if got != step.ready || !strings.Contains(says, step.says) || result.RequeueAfter != step.next {
			t.Errorf("step %d: Ready = %s %q, next in %s, want %s %q in %s", i, got, says, result.RequeueAfter, step.ready, step.says, step.next)
		}
		if told := strings.Join(b.heard(), "\n"); strings.Contains(told+says, "marker") {
			t.Errorf("step %d shows a value: %s", i, told)
		}
	}
}

// TestProtocols_bindings counts the classes and names the agents they reach, each once.
func TestProtocols_bindings(t *testing.T) {
	b := newBench(t)
	p := &v1alpha1.PillarProtocol{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarProtocolSpec{Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}}}
	b.create(p)
	for store, agent := range map[string]string{"1": "z", "2": "a", "3": "z"} {
		b.create(b.lvmStore(b.name+store, b.name+agent))
		b.create(&v1alpha1.PillarStorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name + store}, Spec: v1alpha1.PillarStorageClassSpec{StoreRef: b.name + store, ProtocolRef: b.name}})
	}
	b.create(&v1alpha1.PillarStorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name + "4"}, Spec: v1alpha1.PillarStorageClassSpec{StoreRef: "missing", ProtocolRef: b.name}})
	if next := b.run(&protocols{b.kube}).RequeueAfter; next != 0 {
		t.Errorf("next look in %s at a Ready protocol without a Secret, want none", next)
	}
	b.get(p, b.name)
	if diff := cmp.Diff([]string{b.name + "a", b.name + "z"}, p.Status.ActiveAgents); diff != "" || p.Status.StorageClassCount != 4 {
		t.Errorf("%d classes, agents (-want +got):\n%s", p.Status.StorageClassCount, diff)
	}
	if got := message(p.Status.Conditions, v1alpha1.Ready); !strings.Contains(got, "nvmeof-tcp") {
		t.Errorf("Ready says %q, want the protocol token", got)
	}
}

func (b *bench) lvmStore(name, agent string) *v1alpha1.PillarStore {
	return &v1alpha1.PillarStore{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PillarStoreSpec{
		AgentRef: agent, Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0"}},
	}}
}
