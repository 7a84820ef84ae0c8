package deploy

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// agentDeadline is the longest an agent may take for one call (block.md U-49).
const agentDeadline = 60 * time.Second

// TestBase_Sidecars holds the flags of the sidecars to what was measured with 1,000 claims
// at once (e2e/scale); the reasons stand in the manifest.
func TestBase_Sidecars(t *testing.T) {
	common := map[string]string{
		"csi-address": "/csi/csi.sock", "leader-election": "", "timeout": "120s",
		"retry-interval-start": "1s", "retry-interval-max": "30s", "kube-api-qps": "100", "kube-api-burst": "200",
	}
	own := map[string]map[string]string{
		"csi-provisioner": {"worker-threads": "25", "extra-create-metadata": "", "immediate-topology": "false"},
		"csi-attacher":    {"worker-threads": "25"},
		"csi-resizer":     {"workers": "25"},
	}
	seen := 0
	for _, c := range containers(podOf(render(t, "kustomize/base")["Deployment/pillar-csi-controller"])) {
		name := c["name"].(string)
		if own[name] == nil {
			continue
		}
		seen++
		want := maps.Clone(common)
		maps.Copy(want, own[name])
		got := flags(asList(c["args"]))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("flags of %s (-want +got):\n%s", name, diff)
		}
		if timeout, err := time.ParseDuration(got["timeout"]); err != nil || timeout < agentDeadline*3/2 {
			t.Errorf("%s gives up after %s, want at least %s: an agent may answer after %s", name, got["timeout"], agentDeadline*3/2, agentDeadline)
		}
	}
	if seen != len(own) {
		t.Errorf("the controller's pod has %d of the sidecars %v", seen, slices.Sorted(maps.Keys(own)))
	}
}

// flags reads --name=value and --name.
func flags(args []any) map[string]string {
	m := map[string]string{}
	for _, a := range args {
		name, value, _ := strings.Cut(strings.TrimPrefix(a.(string), "--"), "=")
		m[name] = value
	}
	return m
}
