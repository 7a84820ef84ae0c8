package reconcile

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

// fullAgent is Ready and serves every kind of pool; its ZFS pool is listed twice.
func fullAgent() *v1alpha1.PillarAgent {
	total, free := resource.MustParse("10Gi"), resource.MustParse("4Gi")
	return &v1alpha1.PillarAgent{
		ObjectMeta: metav1.ObjectMeta{Name: "storage-1"},
		Status: v1alpha1.PillarAgentStatus{
			Capabilities: &v1alpha1.AgentCapabilities{
				Backends: []string{"zfs-zvol", "zfs-dataset", "lvm-lv", "directory"}, Protocols: []string{"nvmeof-tcp", "nfs"},
			},
			DiscoveredPools: []v1alpha1.DiscoveredPool{
				{Name: "tank", Type: "zfs", VolumeType: "zvol", ParentDataset: "vols", Total: &total, Available: &free},
				{Name: "tank", Type: "zfs", VolumeType: "dataset", ParentDataset: "sets", Total: &total, Available: &total},
				{Name: "vg0", Type: "lvm", ThinPool: "tp0", Total: &total, Available: &free},
				{Name: "tank", Type: "directory", HostRoot: "/srv"},
			},
			Conditions: []metav1.Condition{met(v1alpha1.Ready), met(v1alpha1.AgentConnected)},
		},
	}
}

// TestObserve holds each reason of api.md 2.3, and that Ready's message says what to do.
func TestObserve(t *testing.T) {
	zvol := v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", ParentDataset: "vols"}}
	dataset := v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", VolumeType: "dataset", ParentDataset: "sets"}}
	lv := func(vg, thin string) v1alpha1.Backend {
		return v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: vg, ThinPool: thin}}
	}
	tests := map[string]struct {
		backend   v1alpha1.Backend
		change    func(*v1alpha1.PillarAgent)
		agent     string // AgentReady
		pool      string // PoolDiscovered
		supported string // BackendSupported
		ready     string
		says      string // part of Ready's message
	}{
		"zvol":      {zvol, nil, "True/AgentReady", "True/PoolDiscovered", "True/BackendSupported", "True/AllConditionsMet", ""},
		"dataset":   {dataset, nil, "True/AgentReady", "True/PoolDiscovered", "True/BackendSupported", "True/AllConditionsMet", ""},
		"thin pool": {lv("vg0", "tp0"), nil, "True/AgentReady", "True/PoolDiscovered", "True/BackendSupported", "True/AllConditionsMet", ""},
		"directory": {v1alpha1.Backend{Directory: &v1alpha1.DirectoryBackend{LogicalPool: "tank", HostRoot: "/srv"}}, nil,
			"True/AgentReady", "True/PoolDiscovered", "True/BackendSupported", "True/AllConditionsMet", ""},
		"no such pool": {lv("vg9", ""), nil, "True/AgentReady", "False/PoolNotFound", "True/BackendSupported", "False/ConditionsNotMet",
			"has no lvm pool vg9 but zfs zvol pool tank, zfs dataset pool tank, lvm pool vg0, directory pool tank; has it another name now, is it exported, or a disk away? A new one: create it and list it in the agent's backends"},
		"only datasets": {zvol, func(a *v1alpha1.PillarAgent) { a.Status.DiscoveredPools = a.Status.DiscoveredPools[1:2] },
			"True/AgentReady", "False/PoolNotFound", "True/BackendSupported", "False/ConditionsNotMet", "has no zfs zvol pool tank but zfs dataset pool tank"},
		"other thin pool": {lv("vg0", ""), nil, "True/AgentReady", "False/BackendLayoutMismatch", "True/BackendSupported", "False/ConditionsNotMet",
			`lvm.thinPool is "" in the PillarStore and "tp0" in the agent's configuration; make them equal`},
		"parent of the other entry": {v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", ParentDataset: "sets"}}, nil,
			"True/AgentReady", "False/BackendLayoutMismatch", "True/BackendSupported", "False/ConditionsNotMet", `zfs.parentDataset is "sets" in the PillarStore and "vols"`},
		"other host root": {v1alpha1.Backend{Directory: &v1alpha1.DirectoryBackend{LogicalPool: "tank", HostRoot: "/mnt"}}, nil,
			"True/AgentReady", "False/BackendLayoutMismatch", "True/BackendSupported", "False/ConditionsNotMet", `directory.hostRoot is "/mnt"`},
		"backend not offered": {lv("vg0", "tp0"), func(a *v1alpha1.PillarAgent) { a.Status.Capabilities.Backends = []string{"zfs-zvol"} },
			"True/AgentReady", "True/PoolDiscovered", "False/BackendNotSupported", "False/ConditionsNotMet", "does not offer lvm-lv but zfs-zvol; it offers what it finds pools of"},
		"agent not Ready": {zvol, func(a *v1alpha1.PillarAgent) {
			a.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "False", Reason: "HealthCheckFailed", Message: "AgentConnected: refused"}}
		}, "False/TargetNotReady", "Unknown/WaitingForAgentData", "Unknown/WaitingForAgentData", "False/ConditionsNotMet", `PillarAgent "storage-1" is not Ready: AgentConnected: refused`},
		"agent never seen": {zvol, func(a *v1alpha1.PillarAgent) { a.Status = v1alpha1.PillarAgentStatus{} },
			"False/TargetNotReady", "Unknown/WaitingForAgentData", "Unknown/WaitingForAgentData", "False/ConditionsNotMet", "is not Ready yet"},
		"dataset without NFS (F-56)": {dataset, func(a *v1alpha1.PillarAgent) {
			a.Status.Capabilities.Protocols = nil
			a.Status.Conditions[1] = metav1.Condition{Type: "AgentConnected", Status: "True", Reason: "AgentDegraded", Message: "nfs: another server owns port 2049"}
		}, "True/AgentReady", "True/PoolDiscovered", "True/BackendSupported", "False/ConditionsNotMet",
			"does not offer nfs, which zfs-dataset volumes need; the agent says: nfs: another server owns port 2049"},
		"the only pool is missing": {lv("vg0", "tp0"), func(a *v1alpha1.PillarAgent) {
			a.Status.DiscoveredPools, a.Status.Capabilities.Backends = nil, nil
		}, "True/AgentReady", "False/PoolNotFound", "False/BackendNotSupported", "False/ConditionsNotMet", "has no lvm pool vg0, nor any other; has it another name now"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			agent := fullAgent()
			if tc.change != nil {
				tc.change(agent)
			}
			store := &v1alpha1.PillarStore{Spec: v1alpha1.PillarStoreSpec{AgentRef: agent.Name, Backend: tc.backend}}
			s := begin(store, &store.Status.Conditions)
			observe(store, agent, s)
			storeIsReady(store, agent, s)
			for kind, want := range map[string]string{
				v1alpha1.AgentReady: tc.agent, v1alpha1.PoolDiscovered: tc.pool, v1alpha1.BackendSupported: tc.supported, v1alpha1.Ready: tc.ready,
			} {
				if got := shown(store.Status.Conditions, kind); got != want {
					t.Errorf("%s = %s, want %s", kind, got, want)
				}
			}
			if got := message(store.Status.Conditions, v1alpha1.Ready); !strings.Contains(got, tc.says) {
				t.Errorf("Ready says %q, want %q", got, tc.says)
			}
		})
	}
}

// TestObserve_capacity copies the figures of the pool of the right volume type, and drops
// them with the pool.
func TestObserve_capacity(t *testing.T) {
	agent := fullAgent()
	store := &v1alpha1.PillarStore{Spec: v1alpha1.PillarStoreSpec{Backend: v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", ParentDataset: "vols"}}}}
	observe(store, agent, begin(store, &store.Status.Conditions))
	if c := store.Status.Capacity; c == nil || c.Available.String() != "4Gi" || c.Used.String() != "6Gi" || c.Total.String() != "10Gi" {
		t.Fatalf("capacity = %+v, want that of the zvol entry", c)
	}
	*agent.Status.DiscoveredPools[0].Available = resource.MustParse("11Gi")
	observe(store, agent, begin(store, &store.Status.Conditions))
	if got := store.Status.Capacity.Used.Value(); got != 0 {
		t.Errorf("used = %d where more is available than there is, want 0", got)
	}
	agent.Status.DiscoveredPools = agent.Status.DiscoveredPools[1:]
	observe(store, agent, begin(store, &store.Status.Conditions))
	if store.Status.Capacity != nil {
		t.Errorf("capacity = %+v of a pool that is not there", store.Status.Capacity)
	}
}

// TestObserve_trouble: a store tells what its own pool suffers from, in one condition and
// in Ready, and nothing of other pools.
func TestObserve_trouble(t *testing.T) {
	zvol := v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", ParentDataset: "vols"}}
	vg := v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg1"}}
	module := agentrpc.Subsystem{Name: "zfs", Message: "the module zfs is not loaded; fix: install it"}
	tank := agentrpc.Subsystem{Name: "pool", Pool: "tank", Message: "no zpool | none"}
	vg0 := agentrpc.Subsystem{Name: "pool", Pool: "vg0", Message: "a disk is away"}
	vg1 := agentrpc.Subsystem{Name: "pool", Pool: "vg1", Message: "no such group; fix: vgrename"}
	const list = "; has it another name now, is it exported, or a disk away? A new one: create it and list it in the agent's backends"
	tests := map[string]struct {
		backend v1alpha1.Backend
		unwell  []agentrpc.Subsystem
		pools   int // of fullAgent's
		want    string
	}{
		"a group among others":   {vg, []agentrpc.Subsystem{module, tank, vg0, vg1}, 0, "has no lvm pool vg1, nor any other; the agent says: pool vg1: no such group; fix: vgrename"},
		"not in the agent's":     {vg, []agentrpc.Subsystem{module, tank, vg0}, 1, "has no lvm pool vg1 but zfs zvol pool tank" + list},
		"the module before":      {zvol, []agentrpc.Subsystem{vg0, tank, module}, 0, "has no zfs zvol pool tank, nor any other; the agent says: zfs: the module zfs is not loaded; fix: install it"},
		"a pool that was | said": {zvol, []agentrpc.Subsystem{vg0, tank}, 0, "has no zfs zvol pool tank, nor any other; the agent says: pool tank: no zpool none"},
		"there and not well":     {zvol, []agentrpc.Subsystem{tank, vg1}, 1, "has zfs zvol pool tank; the agent says: pool tank: no zpool none"},
		"another is not well":    {zvol, []agentrpc.Subsystem{vg1}, 1, "has zfs zvol pool tank"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			agent := fullAgent()
			agent.Status.DiscoveredPools = agent.Status.DiscoveredPools[:tc.pools]
			agent.Status.Conditions[1] = metav1.Condition{Type: v1alpha1.AgentConnected, Status: metav1.ConditionTrue,
				Reason: v1alpha1.ReasonAgentDegraded, Message: degraded(agentrpc.Health{Subsystems: tc.unwell}) + between + "hosts dial other addresses"}
			store := &v1alpha1.PillarStore{Spec: v1alpha1.PillarStoreSpec{AgentRef: agent.Name, Backend: tc.backend}}
			observe(store, agent, begin(store, &store.Status.Conditions))
			if got, want := message(store.Status.Conditions, v1alpha1.PoolDiscovered), `PillarAgent "storage-1" `+tc.want; got != want {
				t.Errorf("PoolDiscovered says %q, want %q", got, want)
			}
			if got := message(store.Status.Conditions, v1alpha1.BackendSupported); strings.Contains(got, "says") {
				t.Errorf("BackendSupported says %q, which PoolDiscovered says", got)
			}
		})
	}
}
