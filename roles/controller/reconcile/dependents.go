package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// world is everything that can hold back a deletion, read from the API server.
type world struct {
	stores  v1alpha1.PillarStoreList
	classes v1alpha1.PillarStorageClassList
	states  v1alpha1.PillarVolumeStateList
	sc      storagev1.StorageClassList
	pvs     corev1.PersistentVolumeList
	claims  corev1.PersistentVolumeClaimList
}

func look(ctx context.Context, api client.Client) (*world, error) {
	w := &world{}
	for _, list := range []client.ObjectList{&w.stores, &w.classes, &w.states, &w.sc, &w.pvs, &w.claims} {
		if err := api.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list %T: %w", list, err)
		}
	}
	return w, nil
}

// volume is one volume as its PV, its record, or both show it.
type volume struct {
	name  string
	agent string
	pool  string
	class string // StorageClass; empty: not known
}

// volumes joins PVs of this driver and records: a volume blocks until both are gone.
func (w *world) volumes() []volume {
	byName := map[string]volume{}
	for _, v := range w.states.Items {
		pool, _, _ := strings.Cut(v.Spec.AgentVolumeID, "/")
		byName[v.Name] = volume{v.Name, v.Spec.AgentRef, pool, w.claimClass(v.Spec.ClaimRef)}
	}
	for _, pv := range w.pvs.Items {
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != v1alpha1.DriverName {
			continue
		}
		v := byName[pv.Name]
		if parts := strings.SplitN(pv.Spec.CSI.VolumeHandle, "/", 5); v.name == "" && len(parts) == 5 {
			v.agent, v.pool = parts[0], parts[3]
		}
		v.name, v.class = pv.Name, pv.Spec.StorageClassName
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

// ownerOf is the PillarStorageClass a StorageClass belongs to: by owner reference, or, if
// the StorageClass is gone, by the name a PillarStorageClass recorded (api.md 2.1).
func (w *world) ownerOf(class string) string {
	for _, sc := range w.sc.Items {
		if sc.Name == class {
			if owner := metav1.GetControllerOf(&sc); owner != nil && owner.Kind == "PillarStorageClass" {
				return owner.Name
			}
			return ""
		}
	}
	for _, psc := range w.classes.Items {
		if class != "" && psc.Status.StorageClassName == class {
			return psc.Name
		}
	}
	return ""
}

// storeOf is the store a volume was provisioned from; empty if that cannot be told.
func (w *world) storeOf(v volume) string {
	owner := w.ownerOf(v.class)
	for _, psc := range w.classes.Items {
		if owner != "" && psc.Name == owner {
			return psc.Spec.StoreRef
		}
	}
	return ""
}

// agentDependents lists what still needs the agent.
func agentDependents(ctx context.Context, api client.Client, agent string) (string, error) {
	w, err := look(ctx, api)
	if err != nil {
		return "", err
	}
	var d dependents
	for _, s := range w.stores.Items {
		d.add(s.Spec.AgentRef == agent, "PillarStore", s.Name)
	}
	for _, v := range w.volumes() {
		d.add(v.agent == agent, "volume", v.name)
	}
	return d.String(), nil
}

// storeDependents lists what still needs the store. A volume that cannot be attributed
// blocks every store on its agent and pool.
func storeDependents(ctx context.Context, api client.Client, s *v1alpha1.PillarStore) (string, error) {
	w, err := look(ctx, api)
	if err != nil {
		return "", err
	}
	var d dependents
	for _, psc := range w.classes.Items {
		d.add(psc.Spec.StoreRef == s.Name, "PillarStorageClass", psc.Name)
	}
	for _, v := range w.volumes() {
		if v.agent == s.Spec.AgentRef && v.pool == settings.Pool(s.Spec.Backend) {
			from := w.storeOf(v)
			d.add(from == "" || from == s.Name, "volume", v.name)
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
	w, err := look(ctx, api)
	if err != nil {
		return "", err
	}
	var d dependents
	for _, c := range w.claims.Items {
		name := c.Spec.StorageClassName
		d.add(name != nil && w.ownerOf(*name) == psc.Name, "claim", c.Namespace+"/"+c.Name)
	}
	for _, v := range w.volumes() {
		d.add(w.ownerOf(v.class) == psc.Name, "volume", v.name)
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

func (d dependents) String() string { return strings.Join(d, ", ") }
