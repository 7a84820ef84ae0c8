package settings

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// classFS sets the filesystem of the PillarStorageClass.
func classFS(fs v1alpha1.Filesystem) func(*Layers) {
	return func(l *Layers) { l.Class.Filesystem = &fs }
}

// handwritten is a class without PillarStorageClass: fs_type of the capability, document.
func handwritten(fsType, doc string) func(*Layers) {
	return func(l *Layers) { l.Class, l.FSType, l.ClassDocs.Filesystem = nil, fsType, doc }
}

// both makes two changes.
func both(a, b func(*Layers)) func(*Layers) {
	return func(l *Layers) { a(l); b(l) }
}

// TestFilesystem_fsType holds the precedence of api.md 3.3.
func TestFilesystem_fsType(t *testing.T) {
	xfs := classFS(v1alpha1.Filesystem{FSType: "xfs"})
	tests := map[string]struct {
		layers func() Layers
		change func(*Layers)
		want   string
	}{
		"nothing said":                       {lvmOverNVMe, func(*Layers) {}, "ext4"},
		"nothing said, NFS":                  {nfsDatasets, func(*Layers) {}, "nfs"},
		"class beats its own copy":           {lvmOverNVMe, both(xfs, func(l *Layers) { l.FSType = "ext4" }), "xfs"},
		"a copy alone is nothing":            {lvmOverNVMe, func(l *Layers) { l.FSType = "xfs" }, "ext4"},
		"claim beats class":                  {lvmOverNVMe, both(xfs, filesystemDoc("fsType: ext4")), "ext4"},
		"null inherits":                      {lvmOverNVMe, both(xfs, filesystemDoc("fsType: null")), "xfs"},
		"hand-written parameter":             {lvmOverNVMe, handwritten("xfs", ""), "xfs"},
		"hand-written document":              {lvmOverNVMe, handwritten("", "fsType: xfs"), "xfs"},
		"hand-written, both agree":           {lvmOverNVMe, handwritten("xfs", "fsType: xfs"), "xfs"},
		"hand-written document without type": {lvmOverNVMe, handwritten("xfs", "periodicTrim: true"), "xfs"},
		"claim beats both":                   {lvmOverNVMe, both(handwritten("xfs", "fsType: xfs"), filesystemDoc("fsType: ext4")), "ext4"},
		"NFS parameter":                      {nfsDatasets, handwritten("nfs", "fsType: nfs"), "nfs"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := test.layers()
			test.change(&l)
			p, err := Resolve(l)
			if err != nil || p.Resolved.Filesystem.FSType != test.want {
				t.Errorf("Resolve = %+v, %v, want fsType %s", p.Resolved.Filesystem, err, test.want)
			}
		})
	}
}

// TestFilesystem_merge: a list replaces, [] clears, nothing and null inherit; periodicTrim
// has three states. Mount options are recorded only when they are not the class's own.
func TestFilesystem_merge(t *testing.T) {
	yes, no := true, false
	class := classFS(v1alpha1.Filesystem{MkfsOptions: &[]string{"-q"}, MountOptions: &[]string{"noatime"}, PeriodicTrim: &no})
	tests := map[string]struct {
		change func(*Layers)
		want   v1alpha1.Filesystem
	}{
		"class alone":      {class, v1alpha1.Filesystem{MkfsOptions: &[]string{"-q"}, PeriodicTrim: &no}},
		"claim inherits":   {both(class, filesystemDoc("{mkfsOptions: null, mountOptions: null, periodicTrim: null}")), v1alpha1.Filesystem{MkfsOptions: &[]string{"-q"}, PeriodicTrim: &no}},
		"claim clears":     {both(class, filesystemDoc("{mkfsOptions: [], mountOptions: []}")), v1alpha1.Filesystem{MkfsOptions: &[]string{}, MountOptions: &[]string{}, PeriodicTrim: &no}},
		"claim replaces":   {both(class, filesystemDoc("{mkfsOptions: [-v], mountOptions: [discard], periodicTrim: true}")), v1alpha1.Filesystem{MkfsOptions: &[]string{"-v"}, MountOptions: &[]string{"discard"}, PeriodicTrim: &yes}},
		"no layer":         {func(*Layers) {}, v1alpha1.Filesystem{}},
		"hand-written":     {handwritten("", "{mountOptions: [noatime], periodicTrim: false}"), v1alpha1.Filesystem{MountOptions: &[]string{"noatime"}, PeriodicTrim: &no}},
		"mount flags only": {both(handwritten("", ""), func(l *Layers) { l.MountFlags = []string{"noatime"} }), v1alpha1.Filesystem{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := lvmOverNVMe()
			test.change(&l)
			test.want.FSType = "ext4"
			p, err := Resolve(l)
			if diff := cmp.Diff(&test.want, p.Resolved.Filesystem); err != nil || diff != "" {
				t.Errorf("Resolve = %v (-want +got):\n%s", err, diff)
			}
		})
	}
	l := lvmOverNVMe()
	l.Block = true
	l.Class.Filesystem = &v1alpha1.Filesystem{FSType: "xfs", MkfsOptions: &[]string{"--no"}}
	if p, err := Resolve(l); err != nil || p.Resolved.Filesystem != nil {
		t.Errorf("Resolve of raw block = %+v, %v, want the class's filesystem ignored", p.Resolved.Filesystem, err)
	}
}

// flags are mount flags of the capability: mountOptions of the class.
func flags(options ...string) func(*Layers) {
	return func(l *Layers) { l.MountFlags = options }
}

// TestFilesystem_refuses holds api.md 3.3, 10.1 and 10.3 for block volumes.
func TestFilesystem_refuses(t *testing.T) {
	resolveRefuses(t, lvmOverNVMe, map[string]refused{
		"nfs on a block protocol":   {filesystemDoc("fsType: nfs"), "pillar-csi.bhyoo.com/filesystem: fsType is not supported over nvmeof-tcp (got nfs); use ext4 or xfs"},
		"nfs of the class":          {classFS(v1alpha1.Filesystem{FSType: "nfs"}), "PillarStorageClass: spec.filesystem.fsType is not supported over nvmeof-tcp (got nfs)"},
		"fstype unknown":            {handwritten("btrfs", ""), "csi.storage.k8s.io/fstype: is not supported (got btrfs); use one of ext4, xfs, nfs"},
		"fstype unknown, not used":  {both(handwritten("btrfs", ""), filesystemDoc("fsType: xfs")), "csi.storage.k8s.io/fstype: is not supported (got btrfs)"},
		"fstype of another kind":    {handwritten("nfs", ""), "csi.storage.k8s.io/fstype: is not supported over nvmeof-tcp (got nfs); use ext4 or xfs"},
		"fstype differs":            {handwritten("ext4", "fsType: xfs"), "csi.storage.k8s.io/fstype: differs from fsType xfs of pillar-csi.bhyoo.com/filesystem (got ext4)"},
		"mkfs option":               {filesystemDoc("mkfsOptions: [-d, /etc]"), `pillar-csi.bhyoo.com/filesystem: mkfsOptions mkfs option "-d" is not allowed for ext4; allowed are -C -D -E`},
		"mkfs option of the class":  {classFS(v1alpha1.Filesystem{MkfsOptions: &[]string{"-n"}}), `PillarStorageClass: spec.filesystem.mkfsOptions mkfs option "-n" is not allowed`},
		"options of the other type": {both(classFS(v1alpha1.Filesystem{MkfsOptions: &[]string{"-E", "nodiscard"}}), filesystemDoc("fsType: xfs")), `PillarStorageClass: spec.filesystem.mkfsOptions mkfs option "-E" is not allowed for xfs`},
		"mount option":              {filesystemDoc("mountOptions: [noatime, bind]"), `pillar-csi.bhyoo.com/filesystem: mountOptions[1] mount option "bind" is not allowed`},
		"mount option of the class": {flags("errors=panic"), `StorageClass: mountOptions[0] mount option "errors=panic" is not allowed`},
	})
	l := lvmOverNVMe()
	l.MountFlags, l.VolumeDocs.Filesystem = []string{"bind"}, "mountOptions: []"
	if _, err := Resolve(l); err != nil {
		t.Errorf("Resolve = %v, want mount flags the claim replaces not judged", err)
	}
}

// TestNFS_refuses holds api.md 3.3, 5 and 10.3 for NFS (files.md F-47, F-48; NF-37).
func TestNFS_refuses(t *testing.T) {
	no := false
	rows := map[string]refused{
		"raw block":              {func(l *Layers) { l.Block = true }, "volume_capabilities: raw block volumes are not supported over nfs"},
		"ext4":                   {filesystemDoc("fsType: ext4"), "fsType is not supported over nfs (got ext4); use nfs"},
		"xfs of the class":       {classFS(v1alpha1.Filesystem{FSType: "xfs"}), "PillarStorageClass: spec.filesystem.fsType is not supported over nfs"},
		"ext4 by parameter":      {handwritten("ext4", ""), "csi.storage.k8s.io/fstype: is not supported over nfs"},
		"mkfs options":           {filesystemDoc("mkfsOptions: [-q]"), "mkfsOptions does not apply to nfs (got -q)"},
		"periodic trim":          {filesystemDoc("periodicTrim: true"), "periodicTrim does not apply to nfs (got true)"},
		"local attach":           {func(l *Layers) { l.Class.LocalAttach = true }, "PillarStorageClass: spec.localAttach does not apply to nfs (got true)"},
		"local attach parameter": {both(handwritten("", ""), func(l *Layers) { l.LocalAttach = true }), "pillar-csi.bhyoo.com/local-attach: does not apply to nfs"},
		"in the class":           {flags("soft"), `StorageClass: mountOptions[0] mount option "soft" is not allowed`},
		"bind":                   {flags("bind"), "another mount"},
	}
	for _, option := range []string{
		"vers=3", "vers=4", "vers=4.1", "nfsvers=4.0", "minorversion=1", "v3", "v4", "v4.0", "v4.1", "proto=udp", "proto=rdma", "proto=tcp6", "udp", "rdma",
		"port=2050", "soft", "softerr", "nohard", "addr=10.0.0.9", "clientaddr=10.0.0.9", "mountport=20048", "mountproto=udp", "mountvers=3",
		"bg", "sec=krb5", "xprtsec=tls", "nolock", "local_lock=all", "noresvport",
	} {
		rows[option] = refused{filesystemDoc("mountOptions: ['noatime," + option + "']"), `mountOptions[0] mount option "` + option + `" is not allowed`}
	}
	resolveRefuses(t, nfsDatasets, rows)

	l := nfsDatasets()
	l.Class.Filesystem = &v1alpha1.Filesystem{MkfsOptions: &[]string{}, PeriodicTrim: &no}
	l.MountFlags = []string{
		"hard", "vers=4.2", "nfsvers=4.2", "v4.2", "minorversion=2", "proto=tcp", "tcp", "port=2049", "sec=sys", "local_lock=none", "fg",
		"noatime", "timeo=600", "retrans=3", "rsize=1048576,wsize=1048576", "nconnect=4", "actimeo=3", "ro",
	}
	if _, err := Resolve(l); err != nil {
		t.Errorf("Resolve = %v, want harmless flags to pass", err)
	}
}
