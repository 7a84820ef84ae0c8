package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/agents"
)

// TestAgents_movedTold: that an agent's address changed is told once, by the look whose
// status was written; one that was late tells nothing.
func TestAgents_movedTold(t *testing.T) {
	b := newBench(t)
	b.cached = indexed{b.cached}
	r := newAgents(b.kube, &agents.Pool{})
	t.Cleanup(func() { r.pool.Close() })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.2"}}
	b.create(node)
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarAgentSpec{NodeRef: &v1alpha1.NodeRef{Name: b.name, Port: new(int32(1))}}}
	pa.Status.ResolvedAddress = "127.0.0.1:1"
	b.create(pa)
	b.create(&v1alpha1.PillarVolumeState{
		ObjectMeta: metav1.ObjectMeta{Name: b.name + "v"},
		Spec:       v1alpha1.PillarVolumeStateSpec{VolumeID: "v", AgentVolumeID: "vg0/v", AgentRef: b.name, BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp"},
		Status:     v1alpha1.PillarVolumeStateStatus{Phase: v1alpha1.PhaseReady, ExportInfo: &v1alpha1.ExportInfo{Address: "127.0.0.1"}},
	})
	b.get(pa, b.name)
	stale := pa.DeepCopy()
	b.edit(pa, func() { pa.Annotations = map[string]string{"written": "meanwhile"} })
	for _, look := range []struct {
		name string
		pa   *v1alpha1.PillarAgent
		told int
	}{{"late", stale, 0}, {"fresh", pa, 1}, {"again", pa, 0}} {
		if look.pa == pa {
			b.get(pa, b.name)
		}
		if _, err := r.check(t.Context(), look.pa, ""); err != nil {
			t.Fatal(err)
		}
		heard := slices.DeleteFunc(b.heard(), func(e string) bool { return !strings.HasPrefix(e, "Warning AddressChanged hosts dial") })
		if len(heard) != look.told {
			t.Errorf("%s look told %q, want %d events", look.name, heard, look.told)
		}
	}
}

// indexed lists the records of an agent as the manager's cache does.
type indexed struct{ client.Client }

func (c indexed) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	records, ok := list.(*v1alpha1.PillarVolumeStateList)
	if !ok {
		return c.Client.List(ctx, list, options...)
	}
	asked := (&client.ListOptions{}).ApplyOptions(options)
	agent, _ := asked.FieldSelector.RequiresExactMatch(byAgent)
	if err := c.Client.List(ctx, records); err != nil {
		return err
	}
	records.Items = slices.DeleteFunc(records.Items, func(v v1alpha1.PillarVolumeState) bool { return v.Spec.AgentRef != agent })
	return nil
}

func TestElsewhere(t *testing.T) {
	at := func(addresses ...string) (volumes []*v1alpha1.PillarVolumeState) {
		for i, address := range addresses {
			v := &v1alpha1.PillarVolumeState{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pvc-%d", 9-i)}}
			if address != "" {
				v.Status.ExportInfo = &v1alpha1.ExportInfo{Address: address}
			}
			volumes = append(volumes, v)
		}
		return volumes
	}
	tests := map[string]struct {
		volumes    []*v1alpha1.PillarVolumeState
		host, want string
	}{
		"no volumes":              {nil, "10.0.0.5", ""},
		"where the agent is":      {at("10.0.0.5", "10.0.0.5"), "10.0.0.5", ""},
		"written in another way":  {at("fd00:0::5", "FD00::5"), "fd00::5", ""},
		"never exported":          {at(""), "10.0.0.5", ""},
		"one":                     {at("10.0.0.4", "10.0.0.5"), "10.0.0.5", "10.0.0.4 (pvc-9)"},
		"at two others":           {at("10.0.0.4", "10.0.0.3", "10.0.0.4"), "10.0.0.5", "10.0.0.3 (pvc-8), 10.0.0.4 (pvc-7; pvc-9)"},
		"many":                    {at("10.0.0.4", "10.0.0.4", "10.0.0.4", "10.0.0.4", "10.0.0.4"), "10.0.0.5", "10.0.0.4 (pvc-5; pvc-6; pvc-7; and 2 more)"},
		"an address beside names": {at("10.0.0.4", "nas"), "nas", "10.0.0.4 (pvc-9)"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := elsewhere(tc.volumes, tc.host); got != tc.want {
				t.Errorf("elsewhere = %q, want %q", got, tc.want)
			}
		})
	}
}
