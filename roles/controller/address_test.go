package controller

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// TestRun_addressChanges renumbers a storage node under a volume: the agent says which
// address hosts dial for it, and takes that back once the address is there again (H-76).
func TestRun_addressChanges(t *testing.T) {
	b := newBench(t)
	k := b.objects()
	for _, obj := range []client.Object{k.node, k.agent, k.store, k.protocol, k.class} {
		b.create(obj)
	}
	b.renumber(k.node, "127.0.0.1")
	b.runController()
	b.eventually(k.class, has(&k.class.Status.Conditions, "Ready", "True", "AllConditionsMet"))
	req := b.createRequest("pvc-n")
	req.Parameters = map[string]string{v1alpha1.StorageClassKey: k.class.Name}
	resp, err := b.CreateVolume(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	says := func(want bool) func() string {
		return func() string {
			message := ""
			if c := meta.FindStatusCondition(k.agent.Status.Conditions, v1alpha1.AgentConnected); c != nil {
				message = c.Message
			}
			if strings.Contains(message, "for volumes made before: 127.0.0.1 ("+req.Name+"); keep these on the machine") != want {
				return fmt.Sprintf("AgentConnected tells what hosts dial: %t, want %t: %s", !want, want, message)
			}
			return ""
		}
	}
	b.eventually(k.agent, says(false))
	b.renumber(k.node, "127.0.0.2") // where no agent answers
	b.eventually(k.agent, says(true))
	b.renumber(k.node, "127.0.0.1")
	b.eventually(k.agent, has(&k.agent.Status.Conditions, "AgentConnected", "True", "Dialed"))
	b.eventually(k.agent, says(false))
	list := &eventsv1.EventList{}
	if err := b.api.List(t.Context(), list, client.InNamespace("default")); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, e := range list.Items {
		if e.Regarding.Name == k.agent.Name && e.Reason == "AddressChanged" && e.Type == corev1.EventTypeWarning {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d events tell that the address changed, want 1", told)
	}
	wantCode(t, "delete", b.delete(resp.Volume.VolumeId), 0, "")
}

// renumber gives the node one address.
func (b *bench) renumber(node *corev1.Node, address string) {
	b.t.Helper()
	if err := b.api.Get(b.t.Context(), client.ObjectKeyFromObject(node), node); err != nil {
		b.t.Fatal(err)
	}
	old := node.DeepCopy()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}
	if err := b.api.Status().Patch(b.t.Context(), node, client.MergeFrom(old)); err != nil {
		b.t.Fatal(err)
	}
}
