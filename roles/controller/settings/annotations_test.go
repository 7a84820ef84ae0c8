package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

const (
	vgUUID = "AAAAAA-bbbb-cccc-dddd-eeee-ffff-000001"
	lvUUID = "AAAAAA-bbbb-cccc-dddd-eeee-ffff-000002"
)

func TestParseAnnotations(t *testing.T) {
	lv := func(preserve bool) *Import {
		return &Import{Selector: ImportLV, Source: "vg0/data:" + vgUUID + ":" + lvUUID, LV: &v1alpha1.LVMSource{
			VolumeGroup: "vg0", LogicalVolume: "data", VolumeGroupUUID: vgUUID, LogicalVolumeUUID: lvUUID, PreserveOriginal: preserve,
		}}
	}
	tests := map[string]struct {
		in   map[string]string
		want Annotations
	}{
		"nothing of ours": {map[string]string{"volume.kubernetes.io/storage-provisioner": "x", "pillar-csi.example.com/import-lv": "y"}, Annotations{}},
		"documents":       {map[string]string{"backend": "b", "protocol": "p", "filesystem": "f"}, Annotations{Documents: Documents{"b", "p", "f"}}},
		"zvol":            {map[string]string{"import-zvol": "tank/k8s/a_b.c-d:e"}, Annotations{Import: &Import{Selector: ImportZvol, Source: "tank/k8s/a_b.c-d:e"}}},
		"LV is preserved": {map[string]string{"import-lv": lv(true).Source}, Annotations{Import: lv(true)}},
		"LV by policy":    {map[string]string{"import-lv": lv(true).Source, "import-lv-policy": "PreserveOriginal"}, Annotations{Import: lv(true)}},
		"LV is managed":   {map[string]string{"import-lv": lv(true).Source, "import-lv-policy": "Managed"}, Annotations{Import: lv(false)}},
		"directory":       {map[string]string{"import-directory": "/srv/a b"}, Annotations{Import: &Import{Selector: ImportDirectory, Source: "/srv/a b"}}},
		"dataset":         {map[string]string{"import-zfs-dataset": "tank/home"}, Annotations{Import: &Import{Selector: ImportZFSDataset, Source: "tank/home"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseAnnotations(own(test.in))
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("ParseAnnotations = %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestParseAnnotations_refuses holds the keys and grammars of api.md 4 (block.md B-70,
// B-532, B-545; files.md F-145).
func TestParseAnnotations_refuses(t *testing.T) {
	type rows = map[string]string // annotations
	const lv = "vg0/data:" + vgUUID + ":" + lvUUID
	tests := map[string]struct {
		in   rows
		want string
	}{
		"unknown key":               {rows{"color": "red"}, `annotations: unsupported PVC annotation "pillar-csi.bhyoo.com/color" (got red)`},
		"pre-0.3 backend":           {rows{"backend-override": "x"}, `unsupported PVC annotation "pillar-csi.bhyoo.com/backend-override"`},
		"pre-0.3 protocol":          {rows{"protocol-override": "x"}, "unsupported PVC annotation"},
		"pre-0.3 filesystem":        {rows{"fs-override": "x"}, "unsupported PVC annotation"},
		"pre-0.3 parameter":         {rows{"param.acl": "x"}, `unsupported PVC annotation "pillar-csi.bhyoo.com/param.acl"`},
		"local attach of one claim": {rows{"local-attach": "true"}, `unsupported PVC annotation "pillar-csi.bhyoo.com/local-attach"`},
		"empty document":            {rows{"protocol": ""}, "pillar-csi.bhyoo.com/protocol: is empty"},
		"two selectors":             {rows{"import-zvol": "tank/v", "import-lv": lv}, "pillar-csi.bhyoo.com/import-zvol, pillar-csi.bhyoo.com/import-lv: exclude each other"},
		"policy alone":              {rows{"import-lv-policy": "Managed"}, "pillar-csi.bhyoo.com/import-lv-policy: needs pillar-csi.bhyoo.com/import-lv"},
		"policy beside a zvol":      {rows{"import-zvol": "tank/v", "import-lv-policy": "Managed"}, "import-lv-policy: needs"},
		"policy in lower case":      {rows{"import-lv": lv, "import-lv-policy": "managed"}, `import-lv-policy: is not supported (got "managed"); use one of PreserveOriginal, Managed`},
		"three faults, first":       {rows{"import-zvol": "tank/v", "import-lv": "x", "import-lv-policy": "managed"}, "3 settings are refused: (1) pillar-csi.bhyoo.com/import-zvol, pillar-csi.bhyoo.com/import-lv: exclude"},
		"three faults, policy":      {rows{"import-zvol": "tank/v", "import-lv": "x", "import-lv-policy": "managed"}, `(2) pillar-csi.bhyoo.com/import-lv-policy: is not supported (got "managed")`},
		"three faults, source":      {rows{"import-zvol": "tank/v", "import-lv": "x", "import-lv-policy": "managed"}, "(3) pillar-csi.bhyoo.com/import-lv: does not name"},
		"LV without UUIDs":          {rows{"import-lv": "vg0/data"}, "write <vg>/<lv>:<vg_uuid>:<lv_uuid>"},
		"LV with one UUID":          {rows{"import-lv": "vg0/data:" + vgUUID}, "write <vg>/<lv>"},
		"LV with three UUIDs":       {rows{"import-lv": lv + ":" + lvUUID}, "write <vg>/<lv>"},
		"LV without group":          {rows{"import-lv": "data:" + vgUUID + ":" + lvUUID}, "write <vg>/<lv>"},
		"LV with two slashes":       {rows{"import-lv": "vg0/a/b:" + vgUUID + ":" + lvUUID}, "write <vg>/<lv>"},
		"LV name reserved":          {rows{"import-lv": "vg0/x_tdata:" + vgUUID + ":" + lvUUID}, "write <vg>/<lv>"},
		"LV that is a flag":         {rows{"import-lv": "vg0/-f:" + vgUUID + ":" + lvUUID}, "write <vg>/<lv>"},
		"UUID too short":            {rows{"import-lv": "vg0/data:" + vgUUID + ":AAAA"}, "write <vg>/<lv>"},
	}
	for name, value := range map[string]string{
		"empty": "", "pool alone": "tank", "leading slash": "/tank/v", "trailing slash": "tank/v/", "two slashes": "tank//v",
		"dot": "tank/./v", "dots": "tank/../v", "snapshot": "tank/v@s", "bookmark": "tank/v#b", "space": "tank/a b", "letters": "tank/ä",
		"newline": "tank/v\n", "too long": "tank/" + strings.Repeat("v", 251),
	} {
		tests["zvol "+name] = struct {
			in   rows
			want string
		}{rows{"import-zvol": value}, "pillar-csi.bhyoo.com/import-zvol: does not name an existing volume"}
		tests["dataset "+name] = struct {
			in   rows
			want string
		}{rows{"import-zfs-dataset": value}, "write <pool>[/<parentDataset>]/<name>"}
	}
	for name, value := range map[string]string{
		"empty": "", "relative": "srv/a", "root": "/", "dots": "/srv/../etc", "dot": "/srv/./a", "two slashes": "/srv//a",
		"trailing slash": "/srv/a/", "NUL": "/srv/a\x00", "newline": "/srv/a\nb", "too long": "/" + strings.Repeat("a", 4095),
	} {
		tests["directory "+name] = struct {
			in   rows
			want string
		}{rows{"import-directory": value}, "pillar-csi.bhyoo.com/import-directory: does not name an existing volume"}
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseAnnotations(own(test.in))
			var bad Problems
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ParseAnnotations(%q) = %v, want Problems with %q", test.in, err, test.want)
			}
		})
	}
}

// importing is a request with one annotation.
func importing(key, value string) func(*Layers) {
	return func(l *Layers) {
		a, err := ParseAnnotations(own(map[string]string{key: value}))
		if err != nil {
			panic(err) // the row itself is wrong
		}
		l.Import = a.Import
	}
}

// adopting is a class of the file identity.
func adopting(backend v1alpha1.Backend) func() Layers {
	return func() Layers {
		l := nfsDatasets()
		l.Store.Backend = backend
		l.Driver, l.Class.CSIDriver = v1alpha1.FileDriverName, v1alpha1.FileDriverName
		return l
	}
}

// TestImport: a selector must fit identity and store; one that does is refused last.
func TestImport(t *testing.T) {
	lv := "data:" + vgUUID + ":" + lvUUID
	resolveRefuses(t, zvolOverISCSI, map[string]refused{
		"zvol of the store":       {importing("import-zvol", "tank/k8s/v"), "pillar-csi.bhyoo.com/import-zvol: is not supported yet (got tank/k8s/v)"},
		"zvol of another pool":    {importing("import-zvol", "tank2/k8s/v"), "is not directly below tank/k8s of the PillarStore"},
		"zvol of a sibling":       {importing("import-zvol", "tank/k8s2/v"), "is not directly below tank/k8s"},
		"zvol deeper":             {importing("import-zvol", "tank/k8s/a/v"), "is not directly below tank/k8s"},
		"zvol of the root":        {importing("import-zvol", "tank/v"), "is not directly below tank/k8s"},
		"the parent itself":       {importing("import-zvol", "tank/k8s"), "is not directly below tank/k8s"},
		"LV of a zvol store":      {importing("import-lv", "vg0/"+lv), `needs a lvm-lv store, PillarStore "fast" is zfs-zvol`},
		"directory, wrong driver": {importing("import-directory", "/srv/a"), "does not apply to driver pillar-csi.bhyoo.com"},
		"dataset, wrong driver":   {importing("import-zfs-dataset", "tank/k8s/v"), "does not apply to driver pillar-csi.bhyoo.com"},
	})
	resolveRefuses(t, lvmOverNVMe, map[string]refused{
		"LV of the store":      {importing("import-lv", "vg0/"+lv), "pillar-csi.bhyoo.com/import-lv: is not supported yet"},
		"LV of another group":  {importing("import-lv", "vg1/"+lv), "is not in volume group vg0 of the PillarStore"},
		"zvol of an LVM store": {importing("import-zvol", "vg0/v"), "needs a zfs-zvol store"},
	})
	resolveRefuses(t, adopting(v1alpha1.Backend{Directory: &v1alpha1.DirectoryBackend{LogicalPool: "shares", HostRoot: "/srv/pillar"}}), map[string]refused{
		"directory below the root":   {importing("import-directory", "/srv/pillar/a/b"), "files.pillar-csi.bhyoo.com) (2) pillar-csi.bhyoo.com/import-directory: is not supported yet"},
		"the root itself":            {importing("import-directory", "/srv/pillar"), "is not below /srv/pillar of the PillarStore"},
		"root with a longer name":    {importing("import-directory", "/srv/pillar2/a"), "is not below /srv/pillar"},
		"dataset of a directory":     {importing("import-zfs-dataset", "tank/v"), "needs a zfs-dataset store"},
		"zvol, wrong driver":         {importing("import-zvol", "tank/v"), "does not apply to driver files.pillar-csi.bhyoo.com"},
		"no selector: never created": {func(*Layers) {}, "annotations: select no existing directory or dataset"},
	})
	dataset := adopting(v1alpha1.Backend{ZFS: &v1alpha1.ZFSBackend{Pool: "tank", VolumeType: "dataset", Properties: map[string]string{"quota": "1G"}}})
	resolveRefuses(t, dataset, map[string]refused{
		"dataset, properties not applied": {importing("import-zfs-dataset", "tank/v"), "pillar-csi.bhyoo.com/import-zfs-dataset: is not supported yet"},
		"dataset deeper":                  {importing("import-zfs-dataset", "tank/a/v"), "is not directly below tank of the PillarStore"},
	})
}
