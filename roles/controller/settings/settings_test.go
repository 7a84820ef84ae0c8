package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
)

func ptr[T any](v T) *T { return &v }

// lvmOverNVMe is what the samples name.
func lvmOverNVMe() Layers {
	return Layers{
		Name: "pvc-1", StoreName: "fast",
		Store: v1alpha1.PillarStoreSpec{AgentRef: "a", Backend: v1alpha1.Backend{
			LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0", ProvisioningMode: "linear"},
		}},
		Protocol: v1alpha1.PillarProtocolSpec{Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{
			Port: 4420, ACL: true, HdrDigest: true, NVMeTunables: v1alpha1.NVMeTunables{MaxQueueSize: ptr(int32(64))},
		}}},
		Class: &v1alpha1.PillarStorageClassSpec{},
	}
}

func TestResolve(t *testing.T) {
	l := lvmOverNVMe()
	l.Class.Filesystem = &v1alpha1.Filesystem{FSType: "xfs", MountOptions: &[]string{"noatime"}, PeriodicTrim: ptr(false)}
	l.Class.Overrides = &v1alpha1.Overrides{Protocol: &v1alpha1.ProtocolOverrides{
		NVMeOFTCP: &v1alpha1.NVMeTunables{CtrlLossTmo: ptr(int32(60)), ReconnectDelay: ptr(int32(5))},
	}}
	l.VolumeDocs = Documents{
		Protocol:   "nvmeofTcp:\n  ctrlLossTmo: 120\n  maxQueueSize: null\n",
		Filesystem: "mountOptions: []\nperiodicTrim: true\n",
	}
	got, err := Resolve(l)
	if err != nil {
		t.Fatal(err)
	}
	want := Plan{
		Backend: storage.LVMLV, Protocol: "nvmeof-tcp", Volume: storage.VolumeID{Pool: "vg0", Name: "pvc-1"},
		Resolved: v1alpha1.Resolved{
			Backend: l.Store.Backend,
			Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{Port: 4420, ACL: true, NVMeTunables: v1alpha1.NVMeTunables{
				MaxQueueSize: ptr(int32(64)), CtrlLossTmo: ptr(int32(120)), ReconnectDelay: ptr(int32(5)),
				MaxDataTransferSize: ptr(v1alpha1.DefaultMaxDataTransferSize),
			}}},
			Filesystem: &v1alpha1.Filesystem{FSType: "xfs", MountOptions: &[]string{}, PeriodicTrim: ptr(true)},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Resolve (-want +got):\n%s", diff)
	}
	if l.Protocol.Protocol.NVMeOFTCP.MaxDataTransferSize != nil || !l.Protocol.Protocol.NVMeOFTCP.HdrDigest {
		t.Error("Resolve changed its input")
	}
}

// nfsDatasets is a dynamic NFS volume.
func nfsDatasets() Layers {
	l := lvmOverNVMe()
	l.Store.Backend = v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", ParentDataset: "k8s", VolumeType: "dataset"}}
	l.Protocol.Protocol = v1alpha1.Protocol{NFS: &v1alpha1.NFS{Version: "4.2", Port: 2049}}
	return l
}

// zvolOverISCSI has tuning on both axes.
func zvolOverISCSI() Layers {
	l := lvmOverNVMe()
	l.Store.Backend = v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", ParentDataset: "k8s"}}
	l.Protocol.Protocol = v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{Port: 3260}}
	return l
}

// refused is one row of a table of refusals: what is changed, and what the message says.
type refused struct {
	change func(*Layers)
	want   string
}

// resolveRefuses holds each row to Problems with the fragment.
func resolveRefuses(t *testing.T, layers func() Layers, rows map[string]refused) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			l := layers()
			row.change(&l)
			_, err := Resolve(l)
			var bad Problems
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("Resolve = %v, want Problems with %q", err, row.want)
			}
		})
	}
}

// TestResolve_layers holds the merge rules of api.md 3.1 for ZFS and iSCSI.
func TestResolve_layers(t *testing.T) {
	l := zvolOverISCSI()
	l.Store.Backend.ZFS.Properties = map[string]string{"compression": "off", "sync": "standard"}
	l.Class.Overrides = &v1alpha1.Overrides{
		Backend:  &v1alpha1.BackendOverrides{ZFS: &v1alpha1.ZFSOverrides{Properties: map[string]string{"compression": "lz4"}}},
		Protocol: &v1alpha1.ProtocolOverrides{ISCSI: &v1alpha1.ISCSITunables{LoginTimeout: ptr(int32(20)), NoopOutTimeout: ptr(int32(7))}},
	}
	l.VolumeDocs = Documents{
		Backend:  "zfs: {properties: {compression: on, volblocksize: 16k, sync: null}}",
		Protocol: "iscsi: {loginTimeout: 30, noopOutInterval: 0, replacementTimeout: null}",
	}
	got, err := Resolve(l)
	if err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.Resolved{
		Backend: v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", ParentDataset: "k8s", Properties: map[string]string{
			"compression": "on", "sync": "standard", "volblocksize": "16k",
		}}},
		Protocol: v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{Port: 3260, ISCSITunables: v1alpha1.ISCSITunables{
			LoginTimeout: ptr(int32(30)), NoopOutInterval: ptr(int32(0)), NoopOutTimeout: ptr(int32(7)),
		}}},
		Filesystem: &v1alpha1.Filesystem{FSType: "ext4"},
	}
	if diff := cmp.Diff(want, got.Resolved); diff != "" {
		t.Errorf("Resolve (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"compression": "off", "sync": "standard"}, l.Store.Backend.ZFS.Properties); diff != "" {
		t.Errorf("Resolve changed the store (-want +got):\n%s", diff)
	}
}

// TestResolve_everything: one answer names every fault of a request.
func TestResolve_everything(t *testing.T) {
	l := lvmOverNVMe()
	l.VolumeDocs = Documents{
		Backend:    "lvm: {provisioningMode: thick, thinPool: x}",
		Protocol:   "nvmeofTcp: {acl: true, maxQueueSize: 8, speed: 1}",
		Filesystem: "{fsType: zfs, mkfsOptions: [1]}",
	}
	_, err := Resolve(l)
	for _, want := range []string{
		"7 settings are refused: (1) ", "lvm.provisioningMode is not supported (got thick)", "lvm.thinPool is structural", "nvmeofTcp.acl is structural",
		"nvmeofTcp.maxQueueSize is out of range (got 8)", "nvmeofTcp.speed is an unknown field", "fsType is not supported (got zfs)",
		"mkfsOptions[0] must be text (got 1); put it in quotes",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Resolve = %v, want %q", err, want)
		}
	}
}

func TestCompatible(t *testing.T) {
	backends := map[storage.BackendType]v1alpha1.Backend{
		storage.ZFSZvol:    {ZFS: &v1alpha1.ZFSBackend{}},
		storage.ZFSDataset: {ZFS: &v1alpha1.ZFSBackend{VolumeType: "dataset"}},
		storage.LVMLV:      {LVM: &v1alpha1.LVMBackend{}},
		storage.Directory:  {Directory: &v1alpha1.DirectoryBackend{}},
	}
	protocols := map[string]v1alpha1.Protocol{
		"nvmeof-tcp": {NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}, "iscsi": {ISCSI: &v1alpha1.ISCSI{}}, "nfs": {NFS: &v1alpha1.NFS{}},
	}
	fits := map[string]bool{ // the table of api.md 1
		"default zfs-zvol nvmeof-tcp": true, "default zfs-zvol iscsi": true, "default lvm-lv nvmeof-tcp": true, "default lvm-lv iscsi": true,
		"default zfs-dataset nfs": true, "files zfs-dataset nfs": true, "files directory nfs": true,
	}
	for identity, name := range map[string]string{"default": v1alpha1.DriverName, "files": v1alpha1.FileDriverName} {
		for backend, b := range backends {
			for protocol, p := range protocols {
				triple := identity + " " + string(backend) + " " + protocol
				err := Compatible(name, b, p)
				if (err == nil) != fits[triple] || (err != nil && (!errors.Is(err, storage.ErrPrecondition) || !strings.Contains(err.Error(), "incompatible"))) {
					t.Errorf("Compatible(%s) = %v, want fitting %t", triple, err, fits[triple])
				}
			}
		}
	}
}
