package reconcile

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

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
