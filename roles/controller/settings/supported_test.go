package settings

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// TestClassNotYet: a class whose volumes a later version makes says so before a claim is
// made.
func TestClassNotYet(t *testing.T) {
	tests := map[string]struct {
		layers func() Layers
		change func(*Layers)
		want   []string
	}{
		"LV over NVMe": {lvmOverNVMe, func(*Layers) {}, nil},
		"local attach": {lvmOverNVMe, func(l *Layers) { l.Class.LocalAttach = true }, []string{"localAttach: true"}},
		"iSCSI":        {zvolOverISCSI, func(*Layers) {}, []string{"protocol iscsi"}},
		"NFS, adopted": {nfsDatasets, func(l *Layers) { l.Class.CSIDriver = v1alpha1.FileDriverName }, []string{"protocol nfs", "driver files.pillar-csi.bhyoo.com"}},
		"thin LV":      {lvmOverNVMe, func(l *Layers) { l.Store.Backend.LVM.ProvisioningMode, l.Store.Backend.LVM.ThinPool = "thin", "tp0" }, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := test.layers()
			test.change(&l)
			var got []string
			for _, text := range ClassNotYet(*l.Class, l.Protocol) {
				what, fix, ok := strings.Cut(text, " is not supported yet; ")
				if got = append(got, what); !ok || fix == "" {
					t.Errorf("%q names no fix", text)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("ClassNotYet (-want +got):\n%s", diff)
			}
		})
	}
}
