package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// world is what can hold back a deletion, read from the API server. The lists of users'
// objects are short; those of volumes are read only where they matter.
type world struct {
	stores  v1alpha1.PillarStoreList
	classes v1alpha1.PillarStorageClassList
	states  v1alpha1.PillarVolumeStateList
	sc      storagev1.StorageClassList
	pvs     corev1.PersistentVolumeList
	claims  corev1.PersistentVolumeClaimList
}

func (w *world) read(ctx context.Context, api client.Client, lists ...client.ObjectList) error {
	for _, list := range lists {
		if err := api.List(ctx, list); err != nil {
			return fmt.Errorf("list %T: %w", list, err)
		}
	}
	return nil
}

// volume is one volume as its PV, its record, or both show it.
type volume struct {
	name  string
	agent string
	pool  string
	class string // StorageClass; empty: not known
	pv    bool   // it has one
}

// shown is the volume in a message. Nobody but the provisioner can end a record, so one
// whose PV is gone needs a new one.
func (v volume) shown() string {
	if v.pv {
		return v.name
	}
	return v.name + " (a record without PersistentVolume; see docs/operations.md)"
}

// volumes joins PVs of this driver and records: a volume blocks until both are gone.
func (w *world) volumes() []volume {
	byName := map[string]volume{}
	for _, v := range w.states.Items {
		pool, _, _ := strings.Cut(v.Spec.AgentVolumeID, "/")
		byName[v.Name] = volume{v.Name, v.Spec.AgentRef, pool, w.claimClass(v.Spec.ClaimRef), false}
	}
	for _, pv := range w.pvs.Items {
		if csi := pv.Spec.CSI; csi == nil || csi.Driver != v1alpha1.DriverName && csi.Driver != v1alpha1.FileDriverName {
			continue
		}
		v := byName[pv.Name]
		if parts := strings.SplitN(pv.Spec.CSI.VolumeHandle, "/", 5); v.name == "" && len(parts) == 5 {
			v.agent, v.pool = parts[0], parts[3]
		}
		v.name, v.class, v.pv = pv.Name, pv.Spec.StorageClassName, true
		byName[pv.Name] = v
	}
	var all []volume
	for _, v := range byName {
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b volume) int { return strings.Compare(a.name, b.name) })
	return all
}

// claimClass is the StorageClass of the claim a record was made for, if that very claim
// still exists.
func (w *world) claimClass(ref *v1alpha1.ClaimRef) string {
	for _, c := range w.claims.Items {
		if ref != nil && string(c.UID) == ref.UID && c.Spec.StorageClassName != nil {
			return *c.Spec.StorageClassName
		}
	}
	return ""
}

// owners are the PillarStorageClasses a StorageClass belongs to: the one it refers to, or,
// if the StorageClass is gone, those that recorded its name. A name merely asked for in a
// spec is no proof (api.md 2.1).
func (w *world) owners(class string) (owners []v1alpha1.PillarStorageClass) {
	if class == "" {
		return nil
	}
	i := slices.IndexFunc(w.sc.Items, func(sc storagev1.StorageClass) bool { return sc.Name == class })
	for _, psc := range w.classes.Items {
		if i < 0 && psc.Status.StorageClassName == class || i >= 0 && owns(psc.UID, w.sc.Items[i].OwnerReferences) {
			owners = append(owners, psc)
		}
	}
	return owners
}

func owns(uid types.UID, refs []metav1.OwnerReference) bool {
	return slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool { return ref.UID == uid })
}

// madeBy tells whether a StorageClass is of that PillarStorageClass.
func (w *world) madeBy(class string, psc *v1alpha1.PillarStorageClass) bool {
	return slices.ContainsFunc(w.owners(class), func(o v1alpha1.PillarStorageClass) bool { return o.UID == psc.UID })
}

// storeOf is the store a volume was provisioned from; empty if that cannot be told.
func (w *world) storeOf(v volume) (store string) {
	for _, psc := range w.owners(v.class) {
		if store != "" && store != psc.Spec.StoreRef {
			return ""
		}
		store = psc.Spec.StoreRef
	}
	return store
}

// agentDependents lists what still needs the agent.
func agentDependents(ctx context.Context, api client.Client, agent string) (string, error) {
	w := &world{}
	if err := w.read(ctx, api, &w.stores, &w.states, &w.pvs); err != nil {
		return "", err
	}
	var d dependents
	for _, s := range w.stores.Items {
		d.add(s.Spec.AgentRef == agent, "PillarStore", s.Name)
	}
	for _, v := range w.volumes() {
		d.add(v.agent == agent, "volume", v.shown())
	}
	return d.String(), nil
}

// storeDependents lists what still needs the store. A volume that cannot be attributed
// blocks every store on its agent and pool.
func storeDependents(ctx context.Context, api client.Client, s *v1alpha1.PillarStore) (string, error) {
	w := &world{}
	if err := w.read(ctx, api, &w.classes, &w.sc, &w.states, &w.pvs, &w.claims); err != nil {
		return "", err
	}
	var d dependents
	for _, psc := range w.classes.Items {
		d.add(psc.Spec.StoreRef == s.Name, "PillarStorageClass", psc.Name)
	}
	for _, v := range w.volumes() {
		if v.agent == s.Spec.AgentRef && v.pool == settings.Pool(s.Spec.Backend) {
			from := w.storeOf(v)
			d.add(from == "" || from == s.Name, "volume", v.shown())
		}
	}
	return d.String(), nil
}

// protocolDependents lists the classes that name the protocol.
func protocolDependents(ctx context.Context, api client.Client, protocol string) (string, error) {
	list := &v1alpha1.PillarStorageClassList{}
	if err := api.List(ctx, list); err != nil {
		return "", fmt.Errorf("list classes: %w", err)
	}
	var d dependents
	for _, psc := range list.Items {
		d.add(psc.Spec.ProtocolRef == protocol, "PillarStorageClass", psc.Name)
	}
	return d.String(), nil
}

// classDependents lists claims of the generated StorageClass and volumes made through it.
func classDependents(ctx context.Context, api client.Client, psc *v1alpha1.PillarStorageClass) (string, error) {
	w := &world{}
	if err := w.read(ctx, api, &w.classes, &w.sc, &w.states, &w.pvs, &w.claims); err != nil {
		return "", err
	}
	var d dependents
	for _, c := range w.claims.Items {
		name := c.Spec.StorageClassName
		d.add(name != nil && w.madeBy(*name, psc), "claim", c.Namespace+"/"+c.Name)
	}
	for _, v := range w.volumes() {
		d.add(w.madeBy(v.class, psc), "volume", v.shown())
	}
	return d.String(), nil
}

// dependents is a list for a condition's message.
type dependents []string

func (d *dependents) add(is bool, kind, name string) {
	if is {
		*d = append(*d, kind+" "+name)
	}
}

func (d dependents) String() string {
	const most = 50 // more names help nobody
	if len(d) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(d[:most], ", "), len(d)-most)
	}
	return strings.Join(d, ", ")
}
