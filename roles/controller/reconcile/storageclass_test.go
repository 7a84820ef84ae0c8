package reconcile

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// classBench has a class whose store and protocol are Ready, and the reconciler of it.
func classBench(t *testing.T, p *v1alpha1.PillarProtocol) (*bench, *classes, *v1alpha1.PillarStorageClass) {
	t.Helper()
	b := newBench(t)
	store := b.lvmStore(b.name, b.name)
	store.Status.Conditions = []metav1.Condition{met(v1alpha1.Ready)}
	b.create(store)
	if p == nil {
		p = &v1alpha1.PillarProtocol{Spec: v1alpha1.PillarProtocolSpec{Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}}}
	}
	p.Name = b.name
	p.Status.Conditions = []metav1.Condition{met(v1alpha1.Ready)}
	b.create(p)
	psc := &v1alpha1.PillarStorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarStorageClassSpec{StoreRef: b.name, ProtocolRef: b.name}}
	b.create(psc)
	return b, &classes{b.kube}, psc
}

// generated reads the StorageClass; it must exist.
func (b *bench) generated() *storagev1.StorageClass {
	b.t.Helper()
	sc := &storagev1.StorageClass{}
	b.get(sc, b.name)
	return sc
}

// wantClass compares the class's conditions StorageClassCreated and Ready.
func (b *bench) wantClass(created, ready, says string) {
	b.t.Helper()
	psc := &v1alpha1.PillarStorageClass{}
	b.get(psc, b.name)
	c := psc.Status.Conditions
	if got := shown(c, v1alpha1.StorageClassCreated); got != created {
		b.t.Errorf("StorageClassCreated = %s, want %s", got, created)
	}
	if got := shown(c, v1alpha1.Ready); got != ready || !strings.Contains(message(c, v1alpha1.Ready), says) {
		b.t.Errorf("Ready = %s %q, want %s %q", got, message(c, v1alpha1.Ready), ready, says)
	}
	if got := psc.Annotations[v1alpha1.CarryOverAnnotation]; got != "" {
		b.t.Errorf("annotation carry-over = %s is left", got)
	}
}

// chapped is iSCSI with CHAP.
func chapped() v1alpha1.Protocol {
	auth := &v1alpha1.ISCSIAuth{Method: v1alpha1.AuthCHAP, SecretRef: &v1alpha1.SecretRef{Name: "chap"}}
	return v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{ACL: true, Auth: auth}}
}

// TestDesiredClass_chap: the parameters name the node-stage Secret (api.md 2.5).
func TestDesiredClass_chap(t *testing.T) {
	want := map[string]string{
		v1alpha1.StorageClassKey: "c", settings.FSTypeKey: "ext4", stageSecretParameter: "chap", stageNamespaceParameter: "default",
	}
	sc := desiredClass(&v1alpha1.PillarStorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, chapped(), "default")
	if diff := cmp.Diff(want, sc.Parameters); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
}

// TestClasses_notYet: a class whose volumes this version cannot make says so, and gets no
// StorageClass that claims would name.
func TestClasses_notYet(t *testing.T) {
	b, r, _ := classBench(t, &v1alpha1.PillarProtocol{Spec: v1alpha1.PillarProtocolSpec{Protocol: chapped()}})
	b.run(r)
	b.wantClass("absent", "False/Incompatible", "Compatible: protocol iscsi is not supported yet; use a PillarProtocol with nvmeofTcp")
	if sc := (&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name}}); !b.gone(sc) {
		t.Error("there is a StorageClass")
	}
}

// TestClasses_parameters: exactly those of api.md 2.5.
func TestClasses_parameters(t *testing.T) {
	tests := map[string]struct {
		fs   *v1alpha1.Filesystem
		want map[string]string
	}{
		"default": {nil, map[string]string{settings.FSTypeKey: "ext4"}},
		"xfs":     {&v1alpha1.Filesystem{FSType: "xfs", MountOptions: &[]string{"noatime"}}, map[string]string{settings.FSTypeKey: "xfs"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b, r, psc := classBench(t, nil)
			b.edit(psc, func() {
				psc.Spec.Filesystem = tc.fs
				psc.Spec.Overrides = &v1alpha1.Overrides{Backend: &v1alpha1.BackendOverrides{LVM: &v1alpha1.LVMOverrides{ProvisioningMode: "linear"}}}
			})
			b.run(r)
			b.wantClass("True/Created", "True/AllConditionsMet", "")
			sc := b.generated()
			tc.want[v1alpha1.StorageClassKey] = b.name
			if diff := cmp.Diff(tc.want, sc.Parameters); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
			if sc.Provisioner != v1alpha1.DriverName || !metav1.IsControlledBy(sc, psc) || *sc.ReclaimPolicy != "Delete" || *sc.VolumeBindingMode != "Immediate" || !*sc.AllowVolumeExpansion {
				t.Errorf("StorageClass = %+v", sc)
			}
			if tc.fs != nil && !slices.Equal(sc.MountOptions, *tc.fs.MountOptions) {
				t.Errorf("mountOptions = %v", sc.MountOptions)
			}
		})
	}
}

// TestClasses_kept makes changes by the user of the class, and by hand to the
// StorageClass: which of them make it anew, and what is told.
func TestClasses_kept(t *testing.T) {
	b, r, psc := classBench(t, nil)
	b.run(r)
	b.heard()
	sc := b.generated()
	steps := []struct {
		what   string
		change func()
		event  string
		anew   bool
	}{
		{"nothing", func() {}, "", false},
		{"overrides", func() {
			b.edit(psc, func() {
				psc.Spec.Overrides = &v1alpha1.Overrides{Backend: &v1alpha1.BackendOverrides{LVM: &v1alpha1.LVMOverrides{ProvisioningMode: "linear"}}}
			})
		}, "", false},
		{"expansion", func() { b.edit(psc, func() { psc.Spec.StorageClass.AllowVolumeExpansion = new(false) }) }, "Normal StorageClassUpdated", false},
		{"expansion by hand", func() { b.edit(sc, func() { sc.AllowVolumeExpansion = new(true) }) }, "Normal StorageClassDriftReverted", false},
		{"mount options by hand", func() { b.edit(sc, func() { sc.MountOptions = []string{"sync"} }) }, "Normal StorageClassDriftReverted", false},
		{"binding mode", func() { b.edit(psc, func() { psc.Spec.StorageClass.VolumeBindingMode = "WaitForFirstConsumer" }) },
			"Normal StorageClassRecreated StorageClass " + b.name + " is made anew, because its volumeBindingMode cannot be changed", true},
		{"fsType", func() { b.edit(psc, func() { psc.Spec.Filesystem = &v1alpha1.Filesystem{FSType: "xfs"} }) }, "because its parameters cannot", true},
		{"deleted by hand", func() { b.delete(sc) }, "was deleted by somebody else", true},
	}
	for _, step := range steps {
		before := b.generated()
		step.change()
		b.run(r)
		b.wantClass("True/Created", "True/AllConditionsMet", "")
		after := b.generated()
		if (after.UID != before.UID) != step.anew {
			t.Errorf("%s: made anew = %t, want %t", step.what, after.UID != before.UID, step.anew)
		}
		if told := strings.Join(b.heard(), "\n"); (told == "") != (step.event == "") || !strings.Contains(told, step.event) {
			t.Errorf("%s: told %q, want %q", step.what, told, step.event)
		}
		sc = after
	}
	if sc.MountOptions != nil || *sc.AllowVolumeExpansion {
		t.Errorf("StorageClass = %+v, want no mount options and no expansion", sc)
	}
}

// TestClasses_crash loses each write of a re-creation, once before and once after it
// reached the API server; the next controller finishes, and what users put on the
// StorageClass is still there.
func TestClasses_crash(t *testing.T) {
	for n := 1; n <= 5; n++ { // save, delete, create, forget, status
		for _, done := range []bool{false, true} {
			t.Run(fmt.Sprintf("write %d reached=%t", n, done), func(t *testing.T) {
				b, r, psc := classBench(t, nil)
				b.run(r)
				sc := b.generated()
				topology := []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{"a"}}}}}
				b.edit(sc, func() {
					sc.Labels, sc.Annotations = map[string]string{"team": "db"}, map[string]string{"storageclass.kubernetes.io/is-default-class": "false"}
					sc.AllowedTopologies = topology
				})
				b.edit(psc, func() { psc.Spec.StorageClass.ReclaimPolicy = "Retain" })
				b.wire.crashAt(n, done)
				r.Reconcile(t.Context(), b.request()) // fails somewhere; what counts is what is left
				if writes := b.wire.take(); len(writes) < n {
					t.Fatalf("only %d writes: %v", len(writes), writes)
				}
				for range 2 { // the status of the first may find that the object moved on
					b.run(r)
				}
				b.wantClass("True/Created", "True/AllConditionsMet", "")
				now := b.generated()
				if *now.ReclaimPolicy != "Retain" || now.UID == sc.UID {
					t.Errorf("reclaimPolicy = %s, made anew = %t", *now.ReclaimPolicy, now.UID != sc.UID)
				}
				for _, diff := range []string{cmp.Diff(sc.Labels, now.Labels), cmp.Diff(sc.Annotations, now.Annotations), cmp.Diff(topology, now.AllowedTopologies)} {
					if diff != "" {
						t.Errorf("lost (-want +got):\n%s", diff)
					}
				}
			})
		}
	}
}

// TestClasses_crash_stale: the successor of a controller that crashed after the deletion has
// a cache from before the labels were saved; they are still there.
func TestClasses_crash_stale(t *testing.T) {
	b, r, psc := classBench(t, nil)
	b.run(r)
	sc := b.generated()
	b.edit(sc, func() { sc.Labels = map[string]string{"team": "db"} })
	b.edit(psc, func() { psc.Spec.StorageClass.ReclaimPolicy = "Retain" })
	stale := psc.DeepCopy()
	b.wire.crashAt(2, true) // saved and deleted
	r.Reconcile(t.Context(), b.request())
	b.wire.take()
	protocol := &v1alpha1.PillarProtocol{}
	b.get(protocol, psc.Spec.ProtocolRef)
	r.generate(t.Context(), stale, protocol, begin(stale, &stale.Status.Conditions))
	if now := b.generated(); now.UID == sc.UID || now.Labels["team"] != "db" {
		t.Errorf("StorageClass = %+v, want a new one with its label", now)
	}
}

// TestClasses_foreign: a StorageClass of that name that is not the class's own is left
// alone, also when the class goes.
func TestClasses_foreign(t *testing.T) {
	b, r, psc := classBench(t, nil)
	foreign := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "PillarStorageClass", Name: b.name, UID: "00000000-earlier", Controller: new(true),
	}}}, Provisioner: "example.com"}
	b.create(foreign)
	if next := b.run(r).RequeueAfter; next != notReady {
		t.Errorf("next look in %s, want %s", next, notReady)
	}
	b.wantClass("False/StorageClassError", "False/StorageClassError", "is not owned by PillarStorageClass")
	if sc := b.generated(); sc.UID != foreign.UID || sc.ResourceVersion != foreign.ResourceVersion {
		t.Error("the foreign StorageClass was touched")
	}
	b.delete(psc)
	b.run(r)
	if !b.gone(psc) || b.generated().UID != foreign.UID {
		t.Error("the class must go and leave the foreign StorageClass")
	}
}

// TestClasses_references holds each reason of StoreReady, ProtocolValid and Compatible, and
// that a StorageClass that exists outlives them, while a new one waits for them.
func TestClasses_references(t *testing.T) {
	b, r, psc := classBench(t, nil)
	store, p := b.lvmStore(b.name, ""), &v1alpha1.PillarProtocol{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	b.unready(store, &store.Status.Conditions, "the pool is on fire")
	b.run(r)
	b.wantClass("absent", "False/PoolNotReady", "is not Ready: the pool is on fire")
	if !b.gone(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name}}) {
		t.Error("a StorageClass was made before the store was Ready")
	}
	b.ready(store, &store.Status.Conditions)
	b.run(r)
	uid := b.generated().UID
	b.unready(p, &p.Status.Conditions, "AuthSecret")
	b.edit(b.generated(), func() {})
	b.run(r)
	b.wantClass("True/Created", "False/ProtocolNotReady", `PillarProtocol "`+b.name+`" is not Ready: AuthSecret`)
	b.delete(p)
	b.run(r)
	b.wantClass("True/Created", "False/ProtocolNotFound", "does not exist; create it")
	nfs := &v1alpha1.PillarProtocol{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarProtocolSpec{Protocol: v1alpha1.Protocol{NFS: &v1alpha1.NFS{}}}}
	nfs.Status.Conditions = []metav1.Condition{met(v1alpha1.Ready)}
	b.create(nfs)
	b.run(r)
	b.wantClass("True/Created", "False/Incompatible", "incompatible")
	b.delete(store)
	b.run(r)
	b.wantClass("True/Created", "False/PoolNotFound", `PillarStore "`+b.name+`" does not exist; create it`)
	b.get(psc, b.name)
	if got := shown(psc.Status.Conditions, v1alpha1.Compatible); got != "absent" {
		t.Errorf("Compatible = %s of a store that is not there", got)
	}
	if b.generated().UID != uid {
		t.Error("the StorageClass did not outlive what it was made of")
	}
}

// TestClasses_unreadyCrash: a StorageClass deleted to be made anew comes back although the
// store is not Ready any more.
func TestClasses_unreadyCrash(t *testing.T) {
	b, r, psc := classBench(t, nil)
	b.run(r)
	b.edit(psc, func() { psc.Spec.StorageClass.ReclaimPolicy = "Retain" })
	b.wire.crashAt(3, false) // the create
	r.Reconcile(t.Context(), b.request())
	b.wire.take()
	store := b.lvmStore(b.name, "")
	b.unready(store, &store.Status.Conditions, "gone")
	b.run(r)
	b.run(r)
	b.wantClass("True/Created", "False/PoolNotReady", "gone")
	if sc := b.generated(); sc.UID == types.UID("") || *sc.ReclaimPolicy != "Retain" {
		t.Errorf("StorageClass = %+v", sc)
	}
}
