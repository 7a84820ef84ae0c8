package reconcile

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/agents"
)

// moved adds to AgentConnected which volumes are recorded at another address than the agent
// has now, and has that told when the address changes. Hosts dial the recorded one, which a
// PersistentVolume keeps for life: without a word a pod would just time out. The machine may
// have both, so nothing is refused.
func (r *Agents) moved(ctx context.Context, pa *v1alpha1.PillarAgent, s status) error {
	if pa.Spec.NodeRef == nil || pa.Status.ResolvedAddress == "" { // spec.external is immutable
		return nil
	}
	volumes, err := r.exports.exported(ctx, pa.Name)
	if err != nil {
		return err
	}
	left := elsewhere(volumes, agents.Host(pa.Status.ResolvedAddress))
	if left == "" {
		return nil
	}
	note := fmt.Sprintf("hosts dial other addresses than %s for volumes made before: %s; keep these on the machine, or have spec.nodeRef.addressSelector pick the one they know",
		agents.Host(pa.Status.ResolvedAddress), left)
	c := meta.FindStatusCondition(*s.conditions, v1alpha1.AgentConnected)
	s.set(c.Type, c.Status, c.Reason, c.Message+between+note)
	if was := s.old.(*v1alpha1.PillarAgent).Status.ResolvedAddress; was != pa.Status.ResolvedAddress {
		*s.notices = append(*s.notices, notice{corev1.EventTypeWarning, eventMoved, "Resolve", note})
	}
	return nil
}

// elsewhere names, by address, the volumes whose hosts dial another address than host; it is
// empty if there are none.
func elsewhere(volumes []*v1alpha1.PillarVolumeState, host string) string {
	at := map[string][]string{}
	for _, v := range volumes {
		if e := v.Status.ExportInfo; e != nil && !sameHost(e.Address, host) {
			at[e.Address] = append(at[e.Address], v.Name)
		}
	}
	var parts []string
	for _, address := range slices.Sorted(maps.Keys(at)) {
		slices.Sort(at[address])
		parts = append(parts, fmt.Sprintf("%s (%s)", address, some(at[address])))
	}
	return strings.Join(parts, ", ")
}

// sameHost compares addresses however they are written; names as they are.
func sameHost(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX == nil && errY == nil {
		return x.Unmap() == y.Unmap()
	}
	return a == b
}
