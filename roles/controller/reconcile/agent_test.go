package reconcile

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// TestNodeAddress holds the address resolution of api.md 2.2.
func TestNodeAddress(t *testing.T) {
	addresses := []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "n1"},
		{Type: corev1.NodeExternalIP, Address: "203.0.113.9"},
		{Type: corev1.NodeInternalIP, Address: "10.0.0.5"},
		{Type: corev1.NodeInternalIP, Address: "192.168.7.5"},
		{Type: corev1.NodeInternalIP, Address: "fd00::5"},
	}
	tests := map[string]struct {
		ref  v1alpha1.NodeRef
		want string // address, or part of the error
	}{
		"first internal":    {v1alpha1.NodeRef{}, "10.0.0.5:9500"},
		"external":          {v1alpha1.NodeRef{AddressType: "ExternalIP"}, "203.0.113.9:9500"},
		"selected":          {v1alpha1.NodeRef{AddressSelector: "192.168.0.0/16"}, "192.168.7.5:9500"},
		"selected IPv6":     {v1alpha1.NodeRef{AddressSelector: "fd00::/8"}, "[fd00::5]:9500"},
		"port":              {v1alpha1.NodeRef{Port: new(int32(9501))}, "10.0.0.5:9501"},
		"none inside":       {v1alpha1.NodeRef{AddressSelector: "172.16.0.0/12"}, `no InternalIP address inside 172.16.0.0/12 (it has Hostname n1, ExternalIP 203.0.113.9, InternalIP 10.0.0.5`},
		"none of that type": {v1alpha1.NodeRef{AddressType: "ExternalIP", AddressSelector: "10.0.0.0/8"}, "change spec.nodeRef.addressType or spec.nodeRef.addressSelector"},
		"no CIDR":           {v1alpha1.NodeRef{AddressSelector: "10.0.0.5"}, `spec.nodeRef.addressSelector "10.0.0.5" is no CIDR; write it like`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := nodeAddress(&tc.ref, addresses)
			if err != nil {
				got = err.Error()
			}
			if !strings.Contains(got, tc.want) || err == nil && got != tc.want {
				t.Errorf("nodeAddress = %s, want %s", got, tc.want)
			}
		})
	}
}

// TestAgents_label: the label stays until the last PillarAgent that names the node is
// gone, also where both go at once.
func TestAgents_label(t *testing.T) {
	b := newBench(t)
	r := newAgents(b.kube, &agents.Pool{})
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: b.name, Labels: map[string]string{"mine": "stays"}}})
	pair := [2]*v1alpha1.PillarAgent{}
	for i, name := range []string{b.name + "a", b.name + "b"} {
		pair[i] = &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PillarAgentSpec{NodeRef: &v1alpha1.NodeRef{Name: b.name}}}
		b.create(pair[i])
		if err := r.protect(t.Context(), pair[i], v1alpha1.AgentFinalizer); err != nil {
			t.Fatal(err)
		}
		if err := r.resolve(t.Context(), pair[i], begin(pair[i], &pair[i].Status.Conditions)); err != nil {
			t.Fatal(err)
		}
		if got := shown(pair[i].Status.Conditions, v1alpha1.AgentConnected); got != "False/AddressNotResolved" {
			t.Errorf("AgentConnected = %s of a node without addresses", got)
		}
	}
	node := &corev1.Node{}
	if b.get(node, b.name); node.Labels[v1alpha1.AgentNodeLabel] != "true" {
		t.Fatalf("labels = %v", node.Labels)
	}
	b.delete(pair[0])
	b.finalize(r, pair[0].Name)
	if b.get(node, b.name); node.Labels[v1alpha1.AgentNodeLabel] != "true" || !b.gone(pair[0]) {
		t.Errorf("labels = %v while another agent names the node", node.Labels)
	}
	third := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name + "c"}, Spec: pair[1].Spec}
	b.create(third)
	if err := r.protect(t.Context(), third, v1alpha1.AgentFinalizer); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{}, 2)
	for _, pa := range []*v1alpha1.PillarAgent{pair[1], third} {
		b.delete(pa)
	}
	for _, pa := range []*v1alpha1.PillarAgent{pair[1], third} {
		go func() { defer func() { done <- struct{}{} }(); b.finalize(r, pa.Name) }()
	}
	<-done
	<-done
	if b.get(node, b.name); node.Labels[v1alpha1.AgentNodeLabel] != "" || node.Labels["mine"] != "stays" {
		t.Errorf("labels = %v after the last agent, want only the user's", node.Labels)
	}
}

// TestAgents_alone: of two objects for one machine the older serves it, N-12.
func TestAgents_alone(t *testing.T) {
	node := func(name string) v1alpha1.PillarAgentSpec {
		return v1alpha1.PillarAgentSpec{NodeRef: &v1alpha1.NodeRef{Name: name}}
	}
	external := func(address string) v1alpha1.PillarAgentSpec {
		return v1alpha1.PillarAgentSpec{External: &v1alpha1.ExternalAgent{Address: address, Port: 9500}}
	}
	tests := map[string]struct {
		first, second v1alpha1.PillarAgentSpec
		address       string // resolved, of the first
		held          bool
	}{
		"one node":               {node("n1"), node("n1"), "", true},
		"two nodes":              {node("n1"), node("n2"), "", false},
		"one address":            {external("192.0.2.1"), external("192.0.2.1"), "", true},
		"two addresses":          {external("192.0.2.1"), external("192.0.2.2"), "", false},
		"a node by its address":  {node("n1"), external("192.0.2.1"), "192.0.2.1:9500", true},
		"two without an address": {node("n1"), node("n3"), "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			r := newAgents(b.kube, &agents.Pool{})
			pair := [2]*v1alpha1.PillarAgent{}
			for i, spec := range []v1alpha1.PillarAgentSpec{tc.first, tc.second} {
				if spec.NodeRef != nil {
					spec.NodeRef = &v1alpha1.NodeRef{Name: b.name + spec.NodeRef.Name}
				} else {
					spec.External = &v1alpha1.ExternalAgent{Address: b.name + "." + spec.External.Address, Port: 9500}
				}
				pair[i] = &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name + string(rune('a'+i))}, Spec: spec}
				b.create(pair[i])
			}
			if tc.address != "" {
				pair[0].Status.ResolvedAddress = b.name + "." + tc.address
				if err := b.api.Status().Update(t.Context(), pair[0]); err != nil {
					t.Fatal(err)
				}
			}
			first, second := pair[0], pair[1]
			if older(second, first) {
				first, second = second, first // made within one second, told apart by UID
			}
			for pa, want := range map[*v1alpha1.PillarAgent]bool{first: false, second: tc.held} {
				pa.Status.ResolvedAddress = dialled(pa)
				if err := r.alone(t.Context(), pa, begin(pa, &pa.Status.Conditions)); err != nil {
					t.Fatal(err)
				}
				got := shown(pa.Status.Conditions, v1alpha1.AgentConnected) == "False/AddressNotResolved"
				if got != want || want && pa.Status.ResolvedAddress != "" {
					t.Errorf("%s held back = %t, want %t; address %q", pa.Name, got, want, pa.Status.ResolvedAddress)
				}
			}
		})
	}
}

// TestAgents_names: an agent older than its schema, with a name or an address nobody could
// have, says so and can be deleted.
func TestAgents_names(t *testing.T) {
	b := newBench(t)
	r := newAgents(b.kube, &agents.Pool{})
	pa := &v1alpha1.PillarAgent{Spec: v1alpha1.PillarAgentSpec{External: &v1alpha1.ExternalAgent{Address: "[::1]", Port: 9500}}}
	s := begin(pa, &pa.Status.Conditions)
	if err := r.resolve(t.Context(), pa, s); err != nil || pa.Status.ResolvedAddress != "" {
		t.Errorf("resolve = %v, address %q, want none", err, pa.Status.ResolvedAddress)
	}
	if got := message(*s.conditions, v1alpha1.AgentConnected); !strings.Contains(got, "spec.external.address is neither an IP address nor a host name (got [::1])") {
		t.Errorf("AgentConnected says %q", got)
	}
	pa.Spec = v1alpha1.PillarAgentSpec{NodeRef: &v1alpha1.NodeRef{Name: "../namespaces/default"}}
	if err := r.unlabel(t.Context(), pa); err != nil {
		t.Errorf("unlabel = %v, want nothing to do", err)
	}
}

// TestOffer leaves out what an agent could only say by mistake.
func TestOffer(t *testing.T) {
	pa := &v1alpha1.PillarAgent{}
	offer(pa, agentrpc.Capabilities{
		Backends:  []storage.BackendType{"lvm-lv", "\x00evil", ""},
		Protocols: []transport.Kind{"nvmeof-tcp", "a b"},
		Pools: []storage.Pool{
			{Name: "", Type: "lvm"}, {Name: "vg\n", Type: "lvm"}, {Name: "vg0", Type: ""},
			{Name: "vg0", Type: "lvm", Capacity: storage.Capacity{Total: -5, Available: -1}},
		},
	})
	s := pa.Status
	if got := fmt.Sprint(s.Capabilities.Backends, s.Capabilities.Protocols); got != "[lvm-lv] [nvmeof-tcp]" {
		t.Errorf("capabilities = %q", got)
	}
	if p := s.DiscoveredPools; len(p) != 1 || p[0].Name != "vg0" || p[0].Total.Value() != 0 || p[0].Available.Value() != 0 {
		t.Errorf("pools = %+v, want vg0 alone, of nothing", p)
	}
}

// finalize reconciles an agent that is being deleted.
func (b *bench) finalize(r *Agents, name string) {
	req := b.request()
	req.Name = name
	if _, err := r.Reconcile(context.Background(), req); err != nil {
		b.t.Errorf("reconcile %s: %v", name, err)
	}
}
