package settings

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// wantProblems compares problems by path and reason.
func wantProblems(t *testing.T, bad Problems, want ...string) {
	t.Helper()
	var got []string
	for _, p := range bad {
		got = append(got, p.Path+" "+p.Reason())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestCheckAgent(t *testing.T) {
	for _, address := range []string{"10.0.0.5", "fd00::5", "::1", "nas", "NAS-1.example.com", "9nas"} {
		wantProblems(t, CheckAgent(v1alpha1.PillarAgentSpec{External: &v1alpha1.ExternalAgent{Address: address}}))
	}
	for _, address := range []string{"[::1]", "1.2.3.4:9500", "http://foo bar/", "10.0.0.300", "300", "fe80::1%eth0", "a_b", "-x", ":::", "a..b"} {
		wantProblems(t, CheckAgent(v1alpha1.PillarAgentSpec{External: &v1alpha1.ExternalAgent{Address: address}}),
			"spec.external.address is neither an IP address nor a host name (got "+address+")")
	}
	wantProblems(t, CheckAgent(v1alpha1.PillarAgentSpec{NodeRef: &v1alpha1.NodeRef{Name: "../nodes/x", AddressSelector: "10.0.0.300/24"}}),
		"spec.nodeRef.name is no name of a Kubernetes object (got ../nodes/x)", "spec.nodeRef.addressSelector is not a CIDR (got 10.0.0.300/24)")
}

func TestCheckStore(t *testing.T) {
	store := nfsDatasets().Store
	store.Backend.ZFS.Properties = map[string]string{"compression": "lz4", "sharenfs": "on", "QUOTA": "1G"}
	wantProblems(t, CheckStore(store),
		"spec.backend.zfs.properties.QUOTA is no name of a ZFS property (got 1G)", "spec.backend.zfs.properties.sharenfs is set by pillar (got on)")

	store.AgentRef, store.Backend.ZFS = "a%b", &v1alpha1.ZFSBackend{Pool: "a/b", ParentDataset: "x/.."}
	wantProblems(t, CheckStore(store), "spec.agentRef is no name of a Kubernetes object (got a%b)",
		`spec.backend.zfs.pool dataset name "a/b": want A-Z a-z 0-9 - _ . : and no - first (got a/b)`,
		`spec.backend.zfs.parentDataset dataset name "..": want A-Z a-z 0-9 - _ . : and no - first (got x/..)`)

	store = v1alpha1.PillarStoreSpec{Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "..", ThinPool: "tp_tdata"}}}
	wantProblems(t, CheckStore(store), `spec.backend.lvm.volumeGroup VG name "..": want A-Z a-z 0-9 + _ . - and no - first (got ..)`,
		`spec.backend.lvm.thinPool LV name "tp_tdata": LVM reserves names that contain "_tdata" (got tp_tdata)`)
}
