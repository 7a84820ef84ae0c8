package reconcile

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// estate is two stores a and b on one pool of one agent, a class of each with its
// StorageClass, and a protocol. All names begin with the bench's.
type estate struct {
	*bench
	stores  [2]*v1alpha1.PillarStore
	classes [2]*v1alpha1.PillarStorageClass
	sc      [2]*storagev1.StorageClass
}

func newEstate(t *testing.T) *estate {
	e := &estate{bench: newBench(t)}
	for i, letter := range []string{"a", "b"} {
		e.stores[i] = e.lvmStore(e.name+letter, e.name)
		e.stores[i].Finalizers = []string{v1alpha1.StoreFinalizer}
		e.create(e.stores[i])
		e.classes[i] = &v1alpha1.PillarStorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: e.name + letter, Finalizers: []string{v1alpha1.ClassFinalizer}},
			Spec:       v1alpha1.PillarStorageClassSpec{StoreRef: e.name + letter, ProtocolRef: e.name},
			Status:     v1alpha1.PillarStorageClassStatus{StorageClassName: e.name + letter},
		}
		e.create(e.classes[i])
		owner := metav1.NewControllerRef(e.classes[i], v1alpha1.GroupVersion.WithKind("PillarStorageClass"))
		e.sc[i] = &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: e.name + letter, OwnerReferences: []metav1.OwnerReference{*owner}}, Provisioner: v1alpha1.DriverName}
		e.create(e.sc[i])
	}
	return e
}

// pv makes the PV of a volume through a StorageClass, which may be none.
func (e *estate) pv(name, driver, class string) *corev1.PersistentVolume {
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: e.name + name}, Spec: corev1.PersistentVolumeSpec{
		StorageClassName: class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
			Driver: driver, VolumeHandle: e.name + "/nvmeof-tcp/lvm-lv/vg0/" + e.name + name,
		}},
	}}
	e.create(pv)
	return pv
}

// pvs makes the record of a volume for a claim, which may be none.
func (e *estate) pvs(name string, claim *corev1.PersistentVolumeClaim) *v1alpha1.PillarVolumeState {
	v := &v1alpha1.PillarVolumeState{ObjectMeta: metav1.ObjectMeta{Name: e.name + name}, Spec: v1alpha1.PillarVolumeStateSpec{
		VolumeID: e.name + "/nvmeof-tcp/lvm-lv/vg0/" + e.name + name, AgentVolumeID: "vg0/" + e.name + name, AgentRef: e.name,
		BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp",
	}}
	if claim != nil {
		v.Spec.ClaimRef = &v1alpha1.ClaimRef{UID: string(claim.UID), Namespace: claim.Namespace, Name: claim.Name}
	}
	e.create(v)
	return v
}

func (e *estate) claim(name, class string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: e.name + name}, Spec: corev1.PersistentVolumeClaimSpec{
		StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
	e.create(c)
	return c
}

// strip removes the finalizers Kubernetes gives to claims and PVs, and deletes.
func (e *estate) strip(obj client.Object) {
	e.t.Helper()
	e.edit(obj, func() { obj.SetFinalizers(nil) })
	e.delete(obj)
}

// TestStores_attribution holds the rows of api.md 2.1 for a volume on the pool that two
// stores share: which of them it blocks. The classes are gone from the API's point of view
// of neither store, so each store is blocked by its class as well; only volumes are compared.
func TestStores_attribution(t *testing.T) {
	tests := map[string]struct {
		make func(*estate)
		a, b bool // blocked by the volume
	}{
		"PV and record of a":           {func(e *estate) { e.pv("v", v1alpha1.DriverName, e.name+"a"); e.pvs("v", nil) }, true, false},
		"PV gone, record with a claim": {func(e *estate) { e.pvs("v", e.claim("c", e.name+"b")) }, false, true},
		"record gone, PV there":        {func(e *estate) { e.pv("v", v1alpha1.DriverName, e.name+"b") }, false, true},
		"PV speaks before the claim":   {func(e *estate) { e.pv("v", v1alpha1.DriverName, e.name+"a"); e.pvs("v", e.claim("c", e.name+"b")) }, true, false},
		"neither PV nor claim":         {func(e *estate) { e.pvs("v", nil) }, true, true},
		"claim made again": {func(e *estate) {
			old := e.claim("c", e.name+"a")
			e.strip(old)
			e.claim("c", e.name+"a")
			e.pvs("v", old)
		}, true, true},
		"PV without a class":               {func(e *estate) { e.pv("v", v1alpha1.DriverName, "") }, true, true},
		"class of nobody":                  {func(e *estate) { e.pv("v", v1alpha1.DriverName, "hand-written") }, true, true},
		"StorageClass gone, name recorded": {func(e *estate) { e.pv("v", v1alpha1.DriverName, e.name+"a"); e.delete(e.sc[0]) }, true, false},
		"StorageClass gone, name only asked for": {func(e *estate) {
			e.pv("v", v1alpha1.DriverName, e.name+"a")
			e.delete(e.sc[0])
			e.classes[0].Status.StorageClassName = ""
			if err := e.api.Status().Update(e.t.Context(), e.classes[0]); err != nil {
				e.t.Fatal(err)
			}
		}, true, true},
		"StorageClass of an earlier class": {func(e *estate) {
			e.edit(e.sc[0], func() { e.sc[0].OwnerReferences[0].UID = "earlier" })
			e.pv("v", v1alpha1.DriverName, e.name+"a")
		}, true, true},
		"StorageClass not owned": {func(e *estate) {
			e.edit(e.sc[0], func() { e.sc[0].OwnerReferences = nil })
			e.pv("v", v1alpha1.DriverName, e.name+"a")
		}, true, true},
		"of the file identity": {func(e *estate) { e.pv("v", v1alpha1.FileDriverName, e.name+"a") }, true, false},
		"of another driver":    {func(e *estate) { e.pv("v", "example.com", e.name+"a") }, false, false},
		"on another pool": {func(e *estate) {
			pv := e.pv("v", v1alpha1.DriverName, "")
			e.strip(pv)
			pv.ResourceVersion, pv.UID = "", ""
			pv.Spec.CSI.VolumeHandle = e.name + "/nvmeof-tcp/lvm-lv/vg1/" + e.name + "v"
			e.create(pv)
		}, false, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			e := newEstate(t)
			tc.make(e)
			for i, want := range []bool{tc.a, tc.b} {
				got, err := storeDependents(t.Context(), e.direct, e.stores[i])
				if err != nil || strings.Contains(got, "volume "+e.name+"v") != want {
					t.Errorf("store %s is blocked by %q, %v; by the volume: want %t", e.stores[i].Name, got, err, want)
				}
			}
		})
	}
}

// TestDeletion takes an estate with one volume down in the supported order: what blocks
// whom, and that a volume counts until both its PV and its record are gone.
func TestDeletion(t *testing.T) {
	e := newEstate(t)
	e.strip(e.stores[1])
	e.strip(e.classes[1])
	p := &v1alpha1.PillarProtocol{ObjectMeta: metav1.ObjectMeta{Name: e.name, Finalizers: []string{v1alpha1.ProtocolFinalizer}}, Spec: v1alpha1.PillarProtocolSpec{Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}}}
	e.create(p)
	claim := e.claim("c", e.name+"a")
	pv, record := e.pv("v", v1alpha1.DriverName, e.name+"a"), e.pvs("v", claim)
	for _, obj := range []client.Object{p, e.classes[0], e.stores[0]} {
		e.delete(obj)
	}
	class, store, protocol := &classes{e.kube}, &stores{e.kube}, &protocols{e.kube}
	volume := "volume " + e.name + "v"
	e.wantBlocked(class, e.classes[0], &e.classes[0].Status.Conditions, "claim default/"+e.name+"c, "+volume)
	e.wantBlocked(store, e.stores[0], &e.stores[0].Status.Conditions, "PillarStorageClass "+e.name+"a, "+volume)
	e.wantBlocked(protocol, p, &p.Status.Conditions, "PillarStorageClass "+e.name+"a")
	e.strip(claim)
	e.strip(record)
	e.wantBlocked(class, e.classes[0], &e.classes[0].Status.Conditions, volume) // PV there, record gone
	if !e.gone(record) || e.gone(e.sc[0]) {
		t.Error("the StorageClass must stay while its class is blocked")
	}
	e.strip(pv)
	e.reconcile(class, e.classes[0].Name)
	if !e.gone(e.classes[0]) || !e.gone(e.sc[0]) {
		t.Error("the class and its StorageClass must go")
	}
	e.reconcile(store, e.stores[0].Name)
	e.reconcile(protocol, p.Name)
	if !e.gone(e.stores[0]) || !e.gone(p) {
		t.Error("store and protocol must go after the class")
	}
}

func (e *estate) reconcile(r reconcile.Reconciler, name string) {
	e.t.Helper()
	req := e.request()
	req.Name = name
	if _, err := r.Reconcile(e.t.Context(), req); err != nil {
		e.t.Errorf("reconcile %s: %v", name, err)
	}
}

// wantBlocked reconciles an object that is being deleted and compares who holds it back.
func (e *estate) wantBlocked(r reconcile.Reconciler, obj client.Object, conditions *[]metav1.Condition, by string) {
	e.t.Helper()
	e.reconcile(r, obj.GetName())
	e.get(obj, obj.GetName())
	got, says := shown(*conditions, v1alpha1.Ready), message(*conditions, v1alpha1.Ready)
	if want := "Deletion blocked: " + by + "; delete these first"; got != "False/DeletionBlocked" || says != want {
		e.t.Errorf("%T %s: Ready = %s %q, want %q", obj, obj.GetName(), got, says, want)
	}
}

// TestDeletion_agent: an agent waits for stores, records and PVs on it, not for those on
// others.
func TestDeletion_agent(t *testing.T) {
	e := newEstate(t)
	pv, record := e.pv("v", v1alpha1.DriverName, ""), e.pvs("w", nil)
	alone := "volume " + e.name + "w (a record without PersistentVolume; see docs/operations.md)"
	other := e.pvs("x", nil)
	e.strip(other)
	other.ResourceVersion, other.UID, other.Spec.AgentRef = "", "", "elsewhere"
	e.create(other)
	for _, step := range []struct {
		remove client.Object
		want   string
	}{
		{nil, "PillarStore " + e.name + "a, PillarStore " + e.name + "b, volume " + e.name + "v, " + alone},
		{e.stores[0], "PillarStore " + e.name + "b, volume " + e.name + "v, " + alone},
		{e.stores[1], "volume " + e.name + "v, " + alone},
		{pv, alone},
		{record, ""},
	} {
		if step.remove != nil {
			e.strip(step.remove)
		}
		if got, err := agentDependents(t.Context(), e.direct, e.name); err != nil || got != step.want {
			t.Errorf("after %T: dependents = %q, %v, want %q", step.remove, got, err, step.want)
		}
	}
}

// TestDeletion_lateClaim: a claim made while the StorageClass goes holds its class back.
func TestDeletion_lateClaim(t *testing.T) {
	e := newEstate(t)
	e.delete(e.classes[0])
	e.wire.before = func(req string) {
		if strings.HasPrefix(req, "DELETE ") {
			e.claim("late", e.name+"a")
		}
	}
	e.wantBlocked(&classes{e.kube}, e.classes[0], &e.classes[0].Status.Conditions, "claim default/"+e.name+"late")
	if !e.gone(e.sc[0]) {
		t.Error("the StorageClass was deleted, or the claim came too early to try this")
	}
}
