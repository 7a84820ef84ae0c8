package settings

import (
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// TestCheckName holds the names of block.md B-14, B-24, B-218 and B-226, and U-1.
func TestCheckName(t *testing.T) {
	tests := map[string]struct {
		backend storage.BackendType
		kind    transport.Kind
		id      string // <pool>/<name>
		want    string // in the message; empty: legal
	}{
		"claim name":              {storage.LVMLV, transport.NVMeTCP, "vg0/pvc-0b8c", ""},
		"longest LV name":         {storage.LVMLV, transport.NVMeTCP, "vg0/" + strings.Repeat("a", 127), ""},
		"too long for an LV":      {storage.LVMLV, transport.NVMeTCP, "vg0/" + strings.Repeat("a", 128), "128 bytes, at most 127"},
		"infix LVM reserves":      {storage.LVMLV, transport.NVMeTCP, "vg0/x_tdata", `name: LV name "x_tdata": LVM reserves`},
		"prefix LVM reserves":     {storage.LVMLV, transport.NVMeTCP, "vg0/pvmove0", "LVM reserves"},
		"leading dash":            {storage.LVMLV, transport.NVMeTCP, "vg0/-x", "no - first"},
		"dots":                    {storage.ZFSZvol, transport.NVMeTCP, "tank/..", `volume name "..": want`},
		"zvol with a dash first":  {storage.ZFSZvol, transport.NVMeTCP, "tank/-a", "no - first"},
		"zvol with colon":         {storage.ZFSZvol, transport.NVMeTCP, "tank/a:b", ""},
		"zvol with plus":          {storage.ZFSZvol, transport.NVMeTCP, "tank/a+b", `volume name "a+b": want`},
		"dataset too long":        {storage.ZFSDataset, transport.NFS, "tank/" + strings.Repeat("a", 250), "has 259 bytes, ZFS takes 255"},
		"NFS has no target":       {storage.ZFSDataset, transport.NFS, "tank/" + strings.Repeat("a", 240), ""},
		"longest target":          {storage.ZFSZvol, transport.NVMeTCP, "tank/" + strings.Repeat("a", 223-len(TargetPrefix)-5), ""},
		"target too long":         {storage.ZFSZvol, transport.NVMeTCP, "tank/" + strings.Repeat("a", 224-len(TargetPrefix)-5), "makes a target name of 224 bytes"},
		"NQN takes all of ASCII":  {storage.LVMLV, transport.NVMeTCP, "VG_0/a_b+C", ""},
		"IQN in lower case":       {storage.LVMLV, transport.ISCSI, "vg0/pvc-0b8c.1", ""},
		"IQN with upper case":     {storage.LVMLV, transport.ISCSI, "vg0/PVC", "vg0.PVC"},
		"IQN with underscore":     {storage.LVMLV, transport.ISCSI, "vg_0/pvc", "is not allowed in an iSCSI name (RFC 3722) (got vg_0.pvc)"},
		"IQN with plus":           {storage.LVMLV, transport.ISCSI, "vg0/a+b", "RFC 3722"},
		"IQN with colon (a zvol)": {storage.ZFSZvol, transport.ISCSI, "tank/a:b", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			id, err := storage.ParseVolumeID(test.id)
			if err != nil {
				t.Fatal(err)
			}
			got := checkName(test.backend, "k8s", test.kind, id).err()
			if test.want == "" && got != nil || test.want != "" && (got == nil || !strings.Contains(got.Error(), test.want)) {
				t.Errorf("checkName(%s, %s, %s) = %v, want %q", test.backend, test.kind, id, got, test.want)
			}
		})
	}
}
