package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseFile(t *testing.T) {
	got, err := parseFile([]byte("backends:\n- lvm: {volumeGroup: vg0}\n- lvm: {volumeGroup: vg1, thinPool: tp, provisioningMode: thin}\n- zfs: {pool: tank, parentDataset: k8s/vols}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := file{Backends: []entry{
		{LVM: &lvmEntry{VolumeGroup: "vg0", ProvisioningMode: "linear"}},
		{LVM: &lvmEntry{VolumeGroup: "vg1", ThinPool: "tp", ProvisioningMode: "thin"}},
		{ZFS: &zfsEntry{Pool: "tank", VolumeType: "zvol", ParentDataset: "k8s/vols"}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parseFile differs (-want +got):\n%s", diff)
	}
}

// What templates leave behind is no second document.
func TestParseFile_emptyDocuments(t *testing.T) {
	got, err := parseFile([]byte("---\n# a chart's\nbackends: [{lvm: {volumeGroup: vg0}}]\n---\n"))
	if err != nil || len(got.Backends) != 1 {
		t.Errorf("parseFile = %+v, %v, want one backend", got, err)
	}
}

func TestParseFile_refuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"nothing":              {"", "backends: at least one backend is required"},
		"an empty list":        {"backends: []", "backends: at least one backend is required"},
		"an unknown key":       {"backends: [{lvm: {volumeGroup: vg0, size: 3}}]", `unknown field "backends[0].lvm.size"`},
		"an unknown top key":   {"backend: []", `unknown field "backend"`},
		"a key twice":          {"backends: []\nbackends: []", `key "backends" already set`},
		"a second document":    {"backends: [{lvm: {volumeGroup: v}}]\n---\nbackends: [{lvm: {volumeGroup: w}}]", "2 YAML documents, want one"},
		"a number for a name":  {"backends: [{lvm: {volumeGroup: 123}}]", "backends.lvm.volumeGroup: number, want text, in quotes"},
		"a word for a VG":      {"backends: [{lvm: vg0}]", "backends.lvm: string, want a mapping"},
		"no list":              {"backends: {lvm: {volumeGroup: v}}", "backends: object, want a list"},
		"no mapping at all":    {"vg0", "the file: string, want a mapping"},
		"an option for a pool": {"backends: [{lvm: {volumeGroup: v, thinPool: -f}}]", `backends[0].lvm.thinPool: invalid: LV name "-f"`},
		"a path for a pool":    {"backends: [{lvm: {volumeGroup: v, thinPool: v/tp}}]", `backends[0].lvm.thinPool: invalid: LV name "v/tp"`},
		"ZFS properties":       {"backends: [{zfs: {pool: p, properties: {}}}]", `unknown field "backends[0].zfs.properties"`},
		"two members":          {"backends: [{lvm: {volumeGroup: v}, zfs: {pool: p}}]", "backends[0]: 2 members"},
		"no member":            {"backends: [{}]", "backends[0]: 0 members"},
		"no VG":                {"backends: [{lvm: {}}]", "backends[0].lvm.volumeGroup"},
		"a path for a VG":      {"backends: [{lvm: {volumeGroup: a/b}}]", "backends[0].lvm.volumeGroup"},
		"an unknown mode":      {"backends: [{lvm: {volumeGroup: v, provisioningMode: thick}}]", `backends[0].lvm.provisioningMode: "thick", want one of linear, thin`},
		"thin without a pool":  {"backends: [{lvm: {volumeGroup: v, provisioningMode: thin}}]", "backends[0].lvm.thinPool: required"},
		"a VG twice":           {"backends: [{lvm: {volumeGroup: v}}, {lvm: {volumeGroup: v}}]", "backends[1]: duplicate pool/VG, already served by backends[0]"},
		"a pool named as a VG": {"backends: [{lvm: {volumeGroup: v}}, {zfs: {pool: v}}]", "backends[1]: duplicate pool/VG"},
		"a volume type twice":  {"backends: [{zfs: {pool: v}}, {zfs: {pool: v, volumeType: zvol}}]", "backends[1]: duplicate pool/VG"},
		"a logical pool twice": {"backends: [{directory: {logicalPool: s, hostRoot: /a}}, {directory: {logicalPool: s, hostRoot: /b}}]", "backends[1]: duplicate"},
		"no host root":         {"backends: [{directory: {logicalPool: s}}]", "backends[0].directory.hostRoot"},
		"no ZFS pool":          {"backends: [{zfs: {parentDataset: k8s}}]", "backends[0].zfs: invalid: pool name"},
		"a space in a pool":    {"backends: [{zfs: {pool: my pool}}]", `backends[0].zfs: invalid: dataset name "my pool"`},
		"a whole dataset path": {"backends: [{zfs: {pool: tank, parentDataset: /tank/k8s}}]", "backends[0].zfs: invalid"},
		"datasets, for now": {"backends: [{lvm: {volumeGroup: s}}, {zfs: {pool: p}}, {zfs: {pool: p, volumeType: dataset}}]",
			`backends[2].zfs.volumeType: "dataset" is not offered by this version yet`},
		"directories, for now": {"backends: [{lvm: {volumeGroup: s}}, {directory: {logicalPool: s, hostRoot: /a}}]",
			"backends[1].directory: not offered by this version yet"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := parseFile([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("parseFile(%s) = %v, want %q", tt.text, err, tt.want)
			}
		})
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add("backends:\n- lvm: {volumeGroup: vg0}\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseFile([]byte(text))
		if err == nil && len(got.Backends) == 0 {
			t.Errorf("parseFile(%q) accepts no backend", text)
		}
	})
}
