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
		Name: "pvc-1",
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

func TestResolve_filesystem(t *testing.T) {
	handwritten := func(l *Layers) { l.Class = nil }
	tests := map[string]struct {
		change func(*Layers)
		want   string
	}{
		"nothing said":                       {func(*Layers) {}, "ext4"},
		"class beats its own copy":           {func(l *Layers) { l.Class.Filesystem = &v1alpha1.Filesystem{FSType: "xfs"}; l.FSType = "ext4" }, "xfs"},
		"claim beats class":                  {func(l *Layers) { l.VolumeDocs.Filesystem = "fsType: xfs" }, "xfs"},
		"hand-written parameter":             {func(l *Layers) { handwritten(l); l.FSType = "xfs" }, "xfs"},
		"hand-written document":              {func(l *Layers) { handwritten(l); l.ClassDocs.Filesystem = "fsType: xfs" }, "xfs"},
		"hand-written document without type": {func(l *Layers) { handwritten(l); l.FSType = "xfs"; l.ClassDocs.Filesystem = "periodicTrim: true" }, "xfs"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := lvmOverNVMe()
			test.change(&l)
			p, err := Resolve(l)
			if err != nil || p.Resolved.Filesystem.FSType != test.want {
				t.Errorf("Resolve = %+v, %v, want fsType %s", p.Resolved.Filesystem, err, test.want)
			}
		})
	}
	l := lvmOverNVMe()
	l.Block = true
	l.Class.Filesystem = &v1alpha1.Filesystem{FSType: "xfs"}
	if p, err := Resolve(l); err != nil || p.Resolved.Filesystem != nil {
		t.Errorf("Resolve of raw block = %+v, %v, want no filesystem", p.Resolved.Filesystem, err)
	}
}

// TestResolve_refuses holds the message table of api.md 3.2: every fault names the field,
// what was found, and what to write instead.
func TestResolve_refuses(t *testing.T) {
	protocol := func(doc string) func(*Layers) { return func(l *Layers) { l.VolumeDocs.Protocol = doc } }
	backend := func(doc string) func(*Layers) { return func(l *Layers) { l.VolumeDocs.Backend = doc } }
	filesystem := func(doc string) func(*Layers) { return func(l *Layers) { l.VolumeDocs.Filesystem = doc } }
	tests := map[string]struct {
		change func(*Layers)
		want   string
	}{
		"structural field": {protocol("nvmeofTcp: {acl: true}"), "pillar-csi.bhyoo.com/protocol: nvmeofTcp.acl is structural and cannot be set per volume (got true)"},
		"unknown field":    {protocol("nvmeofTcp: {speed: 9}"), "nvmeofTcp.speed is an unknown field (got 9); supported: maxQueueSize"},
		"unknown member":   {protocol("smb: {}"), "smb is an unknown field"},
		"out of range":     {protocol("nvmeofTcp: {maxQueueSize: 8}"), "nvmeofTcp.maxQueueSize is out of range (got 8); use 16 to 1024"},
		"no power of two":  {protocol("nvmeofTcp: {maxDataTransferSize: 9000}"), "use 0 or a power of two"},
		"wrong type":       {protocol("nvmeofTcp: {maxQueueSize: many}"), "maxQueueSize must be a"},
		"no member":        {protocol("{}"), "must set exactly one of iscsi, nfs, nvmeofTcp"},
		"two members":      {protocol("{nvmeofTcp: {}, iscsi: {}}"), "must set exactly one of"},
		"two documents":    {protocol("nvmeofTcp: {}\n---\nnvmeofTcp: {}\n"), "one YAML document (got 2"},
		"no mapping":       {protocol("[1"), "is not a YAML mapping"},
		"key twice":        {protocol("nvmeofTcp: {}\nnvmeofTcp: {}"), "is not a YAML mapping"},
		"other member":     {backend("zfs: {properties: {compression: lz4}}"), "zfs overrides do not apply to a lvm-lv backend"},
		"thin, no pool":    {backend("lvm: {provisioningMode: thin}"), "lvm.provisioningMode thin requires PillarStore"},
		"mode unknown":     {backend("lvm: {provisioningMode: thick}"), "use one of linear, thin"},
		"fsType unknown":   {filesystem("fsType: zfs"), "fsType is not supported (got zfs)"},
		"nfs on block":     {filesystem("fsType: nfs"), "use one of ext4, xfs"},
		"mkfs options":     {filesystem("mkfsOptions: [-d, /etc]"), "mkfs option"},
		"block volume":     {func(l *Layers) { l.Block = true; l.VolumeDocs.Filesystem = "fsType: ext4" }, "pillar-csi.bhyoo.com/filesystem: does not apply to volumeMode: Block"},
		"fstype differs": {
			func(l *Layers) { l.Class, l.FSType, l.ClassDocs.Filesystem = nil, "ext4", "fsType: xfs" },
			"csi.storage.k8s.io/fstype: differs from fsType xfs",
		},
		"local attach": {func(l *Layers) { l.Class.LocalAttach = true }, "localAttach: is not supported yet (got true)"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := lvmOverNVMe()
			test.change(&l)
			_, err := Resolve(l)
			var field *FieldError
			if !errors.As(err, &field) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Resolve = %v, want a FieldError with %q", err, test.want)
			}
		})
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
	fits := map[string]bool{
		"zfs-zvol nvmeof-tcp": true, "zfs-zvol iscsi": true, "lvm-lv nvmeof-tcp": true, "lvm-lv iscsi": true, "zfs-dataset nfs": true,
	}
	for backend, b := range backends {
		for protocol, p := range protocols {
			pair := string(backend) + " " + protocol
			if err := Compatible("", b, p); (err == nil) != fits[pair] || (err != nil && !errors.Is(err, storage.ErrPrecondition)) {
				t.Errorf("Compatible(%s) = %v, want fitting %t", pair, err, fits[pair])
			}
		}
	}
}
