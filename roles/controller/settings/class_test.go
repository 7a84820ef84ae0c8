package settings

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// TestCheckClass holds the webhook rules of api.md 2.5: each answer is the paths and
// reasons of all faults.
func TestCheckClass(t *testing.T) {
	block, zvols, files := lvmOverNVMe(), zvolOverISCSI(), nfsDatasets()
	directory := v1alpha1.PillarStoreSpec{Backend: v1alpha1.Backend{Directory: &v1alpha1.DirectoryBackend{}}}
	list := func(l ...string) *[]string { return &l }
	yes := true
	over := func(b *v1alpha1.BackendOverrides, p *v1alpha1.ProtocolOverrides) *v1alpha1.Overrides {
		return &v1alpha1.Overrides{Backend: b, Protocol: p}
	}
	tests := map[string]struct {
		class    v1alpha1.PillarStorageClassSpec
		store    *v1alpha1.PillarStoreSpec
		protocol *v1alpha1.PillarProtocolSpec
		want     []string
	}{
		"fits": {v1alpha1.PillarStorageClassSpec{Filesystem: &v1alpha1.Filesystem{FSType: "xfs", MkfsOptions: list("-K")}, LocalAttach: true}, &block.Store, &block.Protocol, nil},
		"nothing to refer to yet": {v1alpha1.PillarStorageClassSpec{
			LocalAttach: true, Filesystem: &v1alpha1.Filesystem{FSType: "nfs", PeriodicTrim: &yes},
			Overrides: over(&v1alpha1.BackendOverrides{ZFS: &v1alpha1.ZFSOverrides{}}, &v1alpha1.ProtocolOverrides{NFS: &v1alpha1.Nothing{}}),
		}, nil, nil, nil},
		"lists are judged all the same": {
			v1alpha1.PillarStorageClassSpec{Filesystem: &v1alpha1.Filesystem{MkfsOptions: list("-n"), MountOptions: list("noatime", "bind")}}, nil, nil,
			[]string{"spec.filesystem.mkfsOptions", "spec.filesystem.mountOptions[1]"},
		},
		"names of no object": {
			v1alpha1.PillarStorageClassSpec{StoreRef: "a/b", ProtocolRef: "..", StorageClass: v1alpha1.StorageClassTemplate{Name: "Foo_Bar"}}, nil, nil,
			[]string{
				"spec.storeRef is no name of a Kubernetes object (got a/b)", "spec.protocolRef is no name of a Kubernetes object (got ..)",
				"spec.storageClass.name is no name of a Kubernetes object (got Foo_Bar)",
			},
		},
		"incompatible": {v1alpha1.PillarStorageClassSpec{ProtocolRef: "share"}, &block.Store, &files.Protocol,
			[]string{"spec.protocolRef backend lvm-lv and protocol nfs are incompatible (got share)"}},
		"directory needs the file identity": {v1alpha1.PillarStorageClassSpec{ProtocolRef: "share"}, &directory, &files.Protocol,
			[]string{"spec.protocolRef backend directory and protocol nfs are incompatible for driver pillar-csi.bhyoo.com (got share)"}},
		"file identity over blocks": {v1alpha1.PillarStorageClassSpec{CSIDriver: v1alpha1.FileDriverName, ProtocolRef: "fast"}, &block.Store, &block.Protocol,
			[]string{"spec.protocolRef backend lvm-lv and protocol nvmeof-tcp are incompatible for driver files.pillar-csi.bhyoo.com (got fast)"}},
		"overrides of other members": {
			v1alpha1.PillarStorageClassSpec{Overrides: over(&v1alpha1.BackendOverrides{ZFS: &v1alpha1.ZFSOverrides{}}, &v1alpha1.ProtocolOverrides{ISCSI: &v1alpha1.ISCSITunables{}})}, &block.Store, &block.Protocol,
			[]string{"spec.overrides.backend.zfs overrides do not apply to a lvm-lv backend", "spec.overrides.protocol.iscsi overrides do not apply to a nvmeof-tcp protocol"},
		},
		"thin without a pool": {
			v1alpha1.PillarStorageClassSpec{Overrides: over(&v1alpha1.BackendOverrides{LVM: &v1alpha1.LVMOverrides{ProvisioningMode: "thin"}}, nil)}, &block.Store, nil,
			[]string{"spec.overrides.backend.lvm.provisioningMode requires the PillarStore to set lvm.thinPool (got thin)"},
		},
		"property of pillar": {
			v1alpha1.PillarStorageClassSpec{Overrides: over(&v1alpha1.BackendOverrides{ZFS: &v1alpha1.ZFSOverrides{Properties: map[string]string{"volsize": "1G"}}}, nil)}, &zvols.Store, nil,
			[]string{"spec.overrides.backend.zfs.properties.volsize is set by pillar (got 1G)"},
		},
		"everything NFS refuses": {
			v1alpha1.PillarStorageClassSpec{LocalAttach: true, Filesystem: &v1alpha1.Filesystem{FSType: "ext4", MkfsOptions: list("-q"), MountOptions: list("soft"), PeriodicTrim: &yes}}, &files.Store, &files.Protocol,
			[]string{
				"spec.localAttach does not apply to nfs (got true)", "spec.filesystem.fsType is not supported over nfs (got ext4)",
				"spec.filesystem.periodicTrim does not apply to nfs (got true)", "spec.filesystem.mkfsOptions does not apply to nfs (got -q)", "spec.filesystem.mountOptions[0]",
			},
		},
		"file identity binds": {
			v1alpha1.PillarStorageClassSpec{CSIDriver: v1alpha1.FileDriverName, LocalAttach: true, Filesystem: &v1alpha1.Filesystem{MountOptions: list("ro,nosuid", "timeo=600")}}, &directory, &files.Protocol,
			[]string{"spec.filesystem.mountOptions[1]"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range CheckClass(test.class, test.store, test.protocol) {
				if p.Value == "" && p.Path[len(p.Path)-1] == ']' || p.Path == "spec.filesystem.mkfsOptions" && p.Value == "" {
					got = append(got, p.Path) // the reason is that of the list's own test
					continue
				}
				got = append(got, p.Path+" "+p.Reason())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("CheckClass (-want +got):\n%s", diff)
			}
		})
	}
}
