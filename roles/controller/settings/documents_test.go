package settings

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

func protocolDoc(doc string) func(*Layers) {
	return func(l *Layers) { l.VolumeDocs.Protocol = doc }
}

func backendDoc(doc string) func(*Layers) {
	return func(l *Layers) { l.VolumeDocs.Backend = doc }
}

func filesystemDoc(doc string) func(*Layers) {
	return func(l *Layers) { l.VolumeDocs.Filesystem = doc }
}

// TestDocuments holds the fault table of api.md 3.2, row by row.
func TestDocuments(t *testing.T) {
	classDoc := func(d Documents) func(*Layers) {
		return func(l *Layers) { l.Class, l.ClassDocs = nil, d }
	}
	resolveRefuses(t, lvmOverNVMe, map[string]refused{
		"structural field":          {protocolDoc("nvmeofTcp: {acl: true}"), "pillar-csi.bhyoo.com/protocol: nvmeofTcp.acl is structural and cannot be set per volume (got true)"},
		"structural field of class": {classDoc(Documents{Backend: "lvm: {volumeGroup: vg1}"}), "pillar-csi.bhyoo.com/backend: lvm.volumeGroup is structural and cannot be set per volume"},
		"digests are structural":    {protocolDoc("nvmeofTcp: {hdrDigest: true}"), "nvmeofTcp.hdrDigest is structural"},
		"auth is structural":        {protocolDoc("iscsi: {auth: {method: CHAP}}"), "iscsi.auth is structural"},
		"directory takes nothing":   {backendDoc("directory: {hostRoot: /srv}"), "directory.hostRoot is structural"},
		"nfs takes nothing":         {protocolDoc("nfs: {squash: all}"), "nfs.squash is structural"},
		"unknown field":             {protocolDoc("nvmeofTcp: {speed: 9}"), "nvmeofTcp.speed is an unknown field (got 9); supported: ctrlLossTmo, inCapsuleDataSize"},
		"unknown field, none known": {protocolDoc("nfs: {speed: 9}"), "nfs.speed is an unknown field (got 9); supported: nothing"},
		"unknown member":            {protocolDoc("smb: {}"), "smb is an unknown field (got a mapping); supported: iscsi, nfs, nvmeofTcp"},
		"unknown filesystem field":  {filesystemDoc("label: x"), `label is an unknown field (got "x"); supported: fsType, mkfsOptions, mountOptions, periodicTrim`},
		"case matters":              {protocolDoc("nvmeofTCP: {}"), "nvmeofTCP is an unknown field"},
		"below the range":           {protocolDoc("nvmeofTcp: {maxQueueSize: 8}"), "nvmeofTcp.maxQueueSize is out of range (got 8); use 16 to 1024"},
		"above 32 bits":             {protocolDoc("nvmeofTcp: {ctrlLossTmo: 2147483648}"), "nvmeofTcp.ctrlLossTmo is out of range"},
		"above 64 bits":             {protocolDoc("nvmeofTcp: {ctrlLossTmo: 99999999999999999999}"), "nvmeofTcp.ctrlLossTmo is out of range (got 99999999999999999999); use 0 or more"},
		"negative":                  {protocolDoc("nvmeofTcp: {reconnectDelay: -1}"), "nvmeofTcp.reconnectDelay is out of range (got -1); use 0 or more"},
		"no power of two":           {protocolDoc("nvmeofTcp: {maxDataTransferSize: 9000}"), "use 0 or a power of two"},
		"fraction":                  {protocolDoc("nvmeofTcp: {maxQueueSize: 64.5}"), "nvmeofTcp.maxQueueSize must be a whole number (got 64.5)"},
		"text for a number":         {protocolDoc("nvmeofTcp: {maxQueueSize: '64'}"), `nvmeofTcp.maxQueueSize must be a whole number (got "64")`},
		"list for a number":         {protocolDoc("nvmeofTcp: {maxQueueSize: [64]}"), "nvmeofTcp.maxQueueSize must be a whole number (got a list)"},
		"number for text":           {filesystemDoc("fsType: 4"), "fsType must be text (got 4)"},
		"text for a list":           {filesystemDoc("mkfsOptions: -q"), `mkfsOptions must be a list of text (got "-q")`},
		"null in a list":            {filesystemDoc("mountOptions: [null]"), "mountOptions[0] must be text"},
		"text for a truth":          {filesystemDoc("periodicTrim: yes"), `periodicTrim must be true or false (got "yes")`},
		"member is no mapping":      {protocolDoc("nvmeofTcp: 5"), "nvmeofTcp must be a mapping (got 5)"},
		"mode unknown":              {backendDoc("lvm: {provisioningMode: thick}"), "lvm.provisioningMode is not supported (got thick); use one of linear, thin"},
		"fsType unknown":            {filesystemDoc("fsType: zfs"), "fsType is not supported (got zfs); use one of ext4, xfs, nfs"},
		"no member":                 {protocolDoc("{}"), "must set exactly one of iscsi, nfs, nvmeofTcp"},
		"member is null":            {backendDoc("lvm: null"), "must set exactly one of directory, lvm, zfs (got 0 members)"},
		"two members":               {protocolDoc("{nvmeofTcp: {}, iscsi: {}}"), "must set exactly one of iscsi, nfs, nvmeofTcp (got 2 members)"},
		"null":                      {backendDoc("null"), "pillar-csi.bhyoo.com/backend: is empty; give it a YAML document or remove it"},
		"two documents":             {protocolDoc("nvmeofTcp: {}\n---\nnvmeofTcp: {}\n"), "must be one YAML document (got 2 documents); keep one of them"},
		"only a comment":            {protocolDoc("# nothing"), "pillar-csi.bhyoo.com/protocol: is empty; give it a YAML document or remove it"},
		"not YAML":                  {protocolDoc("[1"), "pillar-csi.bhyoo.com/protocol: is not YAML: yaml: line 1"},
		"a list":                    {protocolDoc("[1]"), "is not a YAML mapping (got a list)"},
		"key twice":                 {protocolDoc("nvmeofTcp: {}\nnvmeofTcp: {}"), "nvmeofTcp is set twice"},
		"key is a mapping":          {protocolDoc("{a: 1}: 2"), "is no field name"},
		"alias":                     {filesystemDoc("mkfsOptions: &a [-q]\nmountOptions: *a"), "uses YAML anchors or aliases; write the values out"},
		"merge key":                 {protocolDoc("<<: {nvmeofTcp: {}}"), "<< is an unknown field"},
		"too long":                  {filesystemDoc("# " + strings.Repeat("x", maxDocument)), "is too long (got 16386 bytes); use at most 16384 bytes"},
		"member differs":            {backendDoc("zfs: {properties: {compression: lz4}}"), "zfs overrides do not apply to a lvm-lv backend; remove zfs"},
		"member differs, protocol":  {protocolDoc("iscsi: {}"), "iscsi overrides do not apply to a nvmeof-tcp protocol"},
		"member of the class": {func(l *Layers) {
			l.Class.Overrides = &v1alpha1.Overrides{Protocol: &v1alpha1.ProtocolOverrides{NFS: &v1alpha1.Nothing{}}}
		}, "PillarStorageClass: spec.overrides.protocol.nfs overrides do not apply to a nvmeof-tcp protocol"},
		"thin without pool":          {backendDoc("lvm: {provisioningMode: thin}"), `lvm.provisioningMode thin requires PillarStore "fast" to set lvm.thinPool`},
		"thin store without pool":    {func(l *Layers) { l.Store.Backend.LVM.ProvisioningMode = "thin" }, `lvm.provisioningMode thin requires PillarStore "fast" to set lvm.thinPool`},
		"filesystem on raw block":    {func(l *Layers) { l.Block = true; l.VolumeDocs.Filesystem = "fsType: ext4" }, "pillar-csi.bhyoo.com/filesystem: does not apply to volumeMode: Block"},
		"class of the file identity": {func(l *Layers) { l.Class.CSIDriver = v1alpha1.FileDriverName }, "pillar-csi.bhyoo.com/storage-class: names a class of another driver than pillar-csi.bhyoo.com"},
	})
}

// TestProperties: what ZFS properties no layer may set (files.md F-13).
func TestProperties(t *testing.T) {
	rows := map[string]refused{
		"a number":          {backendDoc("zfs: {properties: {copies: 2}}"), "zfs.properties.copies must be text (got 2); put it in quotes"},
		"another name":      {backendDoc("zfs: {properties: {rdonly: 'on'}}"), "zfs.properties.rdonly is set by pillar"},
		"a file":            {backendDoc("zfs: {properties: {keylocation: 'file:///etc/shadow'}}"), "zfs.properties.keylocation is set by pillar"},
		"a flag":            {backendDoc("zfs: {properties: {-o: x}}"), "zfs.properties.-o is no name of a ZFS property"},
		"upper case":        {backendDoc("zfs: {properties: {MOUNTPOINT: /}}"), "zfs.properties.MOUNTPOINT is no name of a ZFS property"},
		"control character": {backendDoc(`zfs: {properties: {compression: "on\n"}}`), "zfs.properties.compression contains a control character"},
		"a reservation":     {backendDoc("zfs: {properties: {refreservation: 10G}}"), "zfs.properties.refreservation follows the size by itself"},
		"by its column":     {backendDoc("zfs: {properties: {reserv: 16E}}"), "zfs.properties.reserv is set by pillar"},
		"no device":         {backendDoc("zfs: {properties: {volmode: none}}"), "zfs.properties.volmode none would leave the volume without a device"},
		"a plus":            {backendDoc("zfs: {properties: {'com.example:a+b': x}}"), "is no name of a ZFS property"},
		"pillar's own":      {backendDoc("zfs: {properties: {'pillar-csi.bhyoo.com:uid': x}}"), "is set by pillar"},
		"in the store":      {func(l *Layers) { l.Store.Backend.ZFS.Properties = map[string]string{"readonly": "on"} }, "PillarStore: spec.backend.zfs.properties.readonly is set by pillar"},
		"in the class": {func(l *Layers) {
			l.Class.Overrides = &v1alpha1.Overrides{Backend: &v1alpha1.BackendOverrides{ZFS: &v1alpha1.ZFSOverrides{Properties: map[string]string{"volsize": "1"}}}}
		}, "PillarStorageClass: spec.overrides.backend.zfs.properties.volsize is set by pillar"},
	}
	for _, name := range ownedByDriver["zvol"] {
		rows["zvol "+name] = refused{backendDoc("zfs: {properties: {" + name + ": x}}"), "zfs.properties." + name + " is set by pillar"}
	}
	resolveRefuses(t, zvolOverISCSI, rows)
	rows = map[string]refused{
		"no name":      {backendDoc("zfs: {properties: {-reservation: 1G}}"), "zfs.properties.-reservation is no name of a ZFS property"},
		"pillar's own": {backendDoc("zfs: {properties: {'pillar-csi.bhyoo.com:reservation': x}}"), "is set by pillar"},
		"two lines":    {backendDoc(`zfs: {properties: {reservation: "1G\n"}}`), "zfs.properties.reservation contains a control character"},
	}
	for _, name := range ownedByDriver["dataset"] {
		rows["dataset "+name] = refused{backendDoc("zfs: {properties: {" + name + ": x}}"), "zfs.properties." + name + " is set by pillar"}
	}
	resolveRefuses(t, nfsDatasets, rows)

	for layers, doc := range map[*Layers]string{
		new(zvolOverISCSI()): "zfs: {properties: {volmode: dev, refreservation: none}}", // H-15
		new(nfsDatasets()):   "zfs: {properties: {refreservation: 10G, reservation: 10G}}",
	} {
		layers.VolumeDocs.Backend = doc
		if _, err := Resolve(*layers); err != nil {
			t.Errorf("Resolve with %s = %v", doc, err)
		}
	}
	l := nfsDatasets()
	l.VolumeDocs.Backend = "zfs: {properties: {recordsize: 1M, 'com.example:owner': '', compression: off}}"
	if _, err := Resolve(l); err != nil {
		t.Errorf("Resolve = %v, want other properties passed on", err)
	}
}

// schemaOf is a CRD as generated.
type schemaOf struct {
	Type       string
	Minimum    *int64
	Maximum    *int64
	Enum       []any
	Properties map[string]schemaOf
	Spec       struct {
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema schemaOf `json:"openAPIV3Schema"`
			}
		}
	}
}

// TestSchema holds the documents to the ranges the custom resources have: a document may
// set what spec.overrides and spec.filesystem may set, and nothing else.
func TestSchema(t *testing.T) {
	raw, err := os.ReadFile("../../../crds/manifests/pillar-csi.bhyoo.com_pillarstorageclasses.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd schemaOf
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		t.Fatal(err)
	}
	spec := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
	overrides := spec["overrides"].Properties
	for axis, members := range map[string]map[string]member{"backend": backendMembers, "protocol": protocolMembers} {
		sameNames(t, "spec.overrides."+axis, overrides[axis].Properties, members)
		for name, m := range members {
			sameRules(t, "spec.overrides."+axis+"."+name, overrides[axis].Properties[name], m.tunable)
		}
	}
	sameRules(t, "spec.filesystem", spec["filesystem"], filesystemFields)
}

func sameNames[A, B any](t *testing.T, path string, crd map[string]A, ours map[string]B) {
	t.Helper()
	if got, want := strings.Join(sorted(ours), " "), strings.Join(sorted(crd), " "); got != want {
		t.Errorf("documents know %q in %s, the CRD knows %q", got, path, want)
	}
}

func sameRules(t *testing.T, path string, crd schemaOf, rules map[string]rule) {
	t.Helper()
	sameNames(t, path, crd.Properties, rules)
	types := map[kind]string{whole: "integer", text: "string", truth: "boolean", list: "array", keyval: "object"}
	for name, r := range rules {
		field := crd.Properties[name]
		if types[r.kind] != field.Type {
			t.Errorf("%s.%s: documents take %s, the CRD has type %s", path, name, r.kind, field.Type)
		}
		var enum []string
		for _, e := range field.Enum {
			if n, ok := e.(float64); ok {
				e = strconv.FormatInt(int64(n), 10)
			}
			enum = append(enum, e.(string))
		}
		if got, want := strings.Join(r.choices, " "), strings.Join(enum, " "); got != want {
			t.Errorf("%s.%s: documents take %q, the CRD %q", path, name, got, want)
		}
		if r.kind != whole || len(enum) > 0 {
			continue
		}
		low, high := int64(0), int64(1<<31-1)
		replaceRange(&low, field.Minimum)
		replaceRange(&high, field.Maximum)
		if field.Minimum == nil || r.min != low || r.max != high {
			t.Errorf("%s.%s: documents take %d to %d, the CRD %d to %d", path, name, r.min, r.max, low, high)
		}
	}
}

func replaceRange(to, from *int64) {
	if from != nil {
		*to = *from
	}
}

// FuzzDocuments: whatever a claim's author writes is decoded or refused, and what is
// decoded is inside the schema's ranges.
func FuzzDocuments(f *testing.F) {
	f.Add("nvmeofTcp: {maxQueueSize: 64}")
	f.Add("a: &a [*a]")
	f.Add("{zfs: {properties: {a: b}}}\n---\n")
	f.Fuzz(func(t *testing.T, doc string) {
		if o, bad := decodeProtocol("k", doc); len(bad) == 0 && o.NVMeOFTCP != nil && o.NVMeOFTCP.MaxQueueSize != nil &&
			(*o.NVMeOFTCP.MaxQueueSize < 16 || *o.NVMeOFTCP.MaxQueueSize > 1024) {
			t.Errorf("decodeProtocol(%q) = %d, out of range", doc, *o.NVMeOFTCP.MaxQueueSize)
		}
		decodeBackend("k", doc)
		if fs, bad := decodeFilesystem("k", doc); len(bad) == 0 && fs.FSType != "" && !strings.Contains("ext4 xfs nfs", fs.FSType) {
			t.Errorf("decodeFilesystem(%q) = %q", doc, fs.FSType)
		}
	})
}
