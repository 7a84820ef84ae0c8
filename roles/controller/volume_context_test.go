package controller

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// in32 is a setting that is set.
func in32(v int32) *int32 { return &v }

// exportedVolume is a Ready volume with these settings.
func exportedVolume(kind string, info v1alpha1.ExportInfo, r v1alpha1.Resolved) *v1alpha1.PillarVolumeState {
	return &v1alpha1.PillarVolumeState{
		Spec:   v1alpha1.PillarVolumeStateSpec{ProtocolType: kind, Resolved: &r},
		Status: v1alpha1.PillarVolumeStateStatus{ExportInfo: &info},
	}
}

// TestVolumeContext holds every key of api.md 6: with everything set, and with nothing.
func TestVolumeContext(t *testing.T) {
	const nqn, iqn, prefix = "nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1", "iqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1", "pillar-csi.bhyoo.com/"
	no, size := false, v1alpha1.MaxDataTransferSize(0)
	nvme := exportedVolume("nvmeof-tcp", v1alpha1.ExportInfo{TargetID: nqn, Address: "10.0.0.5", Port: 4420, VolumeRef: nqn}, v1alpha1.Resolved{
		Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{NVMeTunables: v1alpha1.NVMeTunables{
			MaxQueueSize: in32(64), InCapsuleDataSize: in32(8192), MaxDataTransferSize: &size, CtrlLossTmo: in32(0), ReconnectDelay: in32(5),
		}}},
		Filesystem: &v1alpha1.Filesystem{
			FSType: "xfs", MkfsOptions: &[]string{"-L", `a "b"`}, MountOptions: &[]string{}, PeriodicTrim: &no,
		},
	})
	preserved := exportedVolume("iscsi", v1alpha1.ExportInfo{TargetID: iqn, Address: "fd00::5", Port: 3260, VolumeRef: "0"}, v1alpha1.Resolved{
		Protocol: v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{
			ISCSITunables: v1alpha1.ISCSITunables{LoginTimeout: in32(15), ReplacementTimeout: in32(0), NoopOutInterval: in32(5), NoopOutTimeout: in32(6)},
			Auth:          &v1alpha1.ISCSIAuth{Method: "MutualCHAP"},
		}},
	})
	preserved.Spec.LVMSource = &v1alpha1.LVMSource{PreserveOriginal: true}
	tests := map[string]struct {
		volume *v1alpha1.PillarVolumeState
		want   map[string]string
	}{
		"everything of NVMe": {nvme, map[string]string{
			"target_id": nqn, "address": "10.0.0.5", "port": "4420",
			prefix + "protocol-type": "nvmeof-tcp", prefix + "volume-ref": nqn,
			prefix + "nvmeof-max-queue-size": "64", prefix + "nvmeof-max-data-transfer-size": "0",
			prefix + "nvmeof-ctrl-loss-tmo": "0", prefix + "nvmeof-reconnect-delay": "5",
			prefix + "fs-type": "xfs", prefix + "mkfs-options": `["-L","a \"b\""]`, prefix + "mount-options": "[]", prefix + "periodic-trim": "false",
		}},
		"nothing of NVMe": {
			exportedVolume("nvmeof-tcp", v1alpha1.ExportInfo{TargetID: nqn, Address: "10.0.0.5", Port: 4420, VolumeRef: nqn},
				v1alpha1.Resolved{Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}, Filesystem: &v1alpha1.Filesystem{FSType: "ext4"}}),
			map[string]string{
				"target_id": nqn, "address": "10.0.0.5", "port": "4420",
				prefix + "protocol-type": "nvmeof-tcp", prefix + "volume-ref": nqn,
				prefix + "nvmeof-max-data-transfer-size": "4194304", prefix + "fs-type": "ext4",
			},
		},
		"everything of iSCSI, raw block, preserved": {preserved, map[string]string{
			"target_id": iqn, "address": "fd00::5", "port": "3260",
			prefix + "protocol-type": "iscsi", prefix + "volume-ref": "0",
			prefix + "iscsi-login-timeout": "15", prefix + "iscsi-replacement-timeout": "0",
			prefix + "iscsi-noop-out-interval": "5", prefix + "iscsi-noop-out-timeout": "6",
			prefix + "iscsi-auth-method": "MutualCHAP", prefix + "import-policy": "PreserveOriginal",
		}},
		"nothing of iSCSI": {
			exportedVolume("iscsi", v1alpha1.ExportInfo{TargetID: iqn, Address: "10.0.0.5", Port: 3260, VolumeRef: "0"},
				v1alpha1.Resolved{Protocol: v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{Auth: &v1alpha1.ISCSIAuth{Method: "None"}}}}),
			map[string]string{
				"target_id": iqn, "address": "10.0.0.5", "port": "3260", prefix + "protocol-type": "iscsi", prefix + "volume-ref": "0",
			},
		},
		"NFS": {
			exportedVolume("nfs", v1alpha1.ExportInfo{TargetID: "/tank.pvc-1", Address: "10.0.0.5", Port: 2049, VolumeRef: "/tank.pvc-1"}, v1alpha1.Resolved{
				Protocol:   v1alpha1.Protocol{NFS: &v1alpha1.NFS{Version: "4.2"}},
				Filesystem: &v1alpha1.Filesystem{FSType: "nfs", MountOptions: &[]string{"noatime"}},
			}),
			map[string]string{
				"target_id": "/tank.pvc-1", "address": "10.0.0.5", "port": "2049", prefix + "protocol-type": "nfs", prefix + "volume-ref": "/tank.pvc-1",
				prefix + "nfs-version": "4.2", prefix + "fs-type": "nfs", prefix + "mount-options": `["noatime"]`,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, volumeContext(test.volume)); diff != "" {
				t.Errorf("volumeContext (-want +got):\n%s", diff)
			}
		})
	}
}
