package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// own puts the prefix before keys without a slash, which tables leave out.
func own(keys map[string]string) map[string]string {
	full := map[string]string{}
	for key, value := range keys {
		if !strings.Contains(key, "/") {
			key = "pillar-csi.bhyoo.com/" + key
		}
		full[key] = value
	}
	return full
}

func TestParseParameters(t *testing.T) {
	tests := map[string]struct {
		in   map[string]string
		want Parameters
	}{
		"generated": {
			map[string]string{"storage-class": "fast", "csi.storage.k8s.io/node-stage-secret-name": "chap"},
			Parameters{Class: "fast"},
		},
		"hand-written": {
			map[string]string{
				"store-ref": "s", "protocol-ref": "p", "local-attach": "true", "backend": "b", "protocol": "c", "filesystem": "f",
				"csi.storage.k8s.io/fstype": "xfs", "csi.storage.k8s.io/pvc/name": "claim", "csi.storage.k8s.io/pvc/namespace": "default",
				"example.com/mine": "ignored",
			},
			Parameters{
				Store: "s", Protocol: "p", LocalAttach: true, Documents: Documents{"b", "c", "f"},
				FSType: "xfs", PVCName: "claim", PVCNamespace: "default",
			},
		},
		"local attach off": {map[string]string{"store-ref": "s", "protocol-ref": "p", "local-attach": "false"}, Parameters{Store: "s", Protocol: "p"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseParameters(own(test.in))
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("ParseParameters = %v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestParseParameters_refuses holds the bad values of api.md 5 (block.md B-69).
func TestParseParameters_refuses(t *testing.T) {
	handwritten := func(key, value string) map[string]string {
		return map[string]string{"store-ref": "s", "protocol-ref": "p", key: value}
	}
	unsupported := func(key string) string {
		return `parameters: unsupported StorageClass parameter "pillar-csi.bhyoo.com/` + key + `"`
	}
	tests := map[string]struct {
		in   map[string]string
		want string
	}{
		"nothing":                  {nil, "pillar-csi.bhyoo.com/store-ref is missing; name a PillarStore and a PillarProtocol, or use pillar-csi.bhyoo.com/storage-class"},
		"no store":                 {map[string]string{"protocol-ref": "p"}, "pillar-csi.bhyoo.com/store-ref is missing"},
		"no protocol":              {map[string]string{"store-ref": "s"}, "pillar-csi.bhyoo.com/protocol-ref is missing"},
		"empty store":              {map[string]string{"store-ref": "", "protocol-ref": "p"}, "pillar-csi.bhyoo.com/store-ref: is empty"},
		"empty class":              {map[string]string{"storage-class": " "}, "pillar-csi.bhyoo.com/storage-class: is empty"},
		"empty document":           {handwritten("filesystem", "\n"), "pillar-csi.bhyoo.com/filesystem: is empty"},
		"local attach yes":         {handwritten("local-attach", "yes"), `pillar-csi.bhyoo.com/local-attach: must be "true" or "false" (got "yes")`},
		"local attach upper case":  {handwritten("local-attach", "True"), `must be "true" or "false"`},
		"unknown key":              {handwritten("color", "red"), unsupported("color") + " (got red); remove it"},
		"pre-0.3 ZFS property":     {handwritten("zfs-prop.compression", "lz4"), unsupported("zfs-prop.compression")},
		"pre-0.3 LVM setting":      {handwritten("lvm-mode", "thin"), unsupported("lvm-mode")},
		"pre-0.3 NVMe setting":     {handwritten("nvmeof-port", "4420"), unsupported("nvmeof-port")},
		"pre-0.3 ACL":              {handwritten("acl-enabled", "true"), unsupported("acl-enabled")},
		"pre-0.3 backend":          {handwritten("backend-type", "zfs"), unsupported("backend-type")},
		"import is no parameter":   {handwritten("import-zvol", "tank/v"), unsupported("import-zvol")},
		"class beside a store":     {map[string]string{"storage-class": "c", "store-ref": "s"}, "pillar-csi.bhyoo.com/store-ref cannot stand beside pillar-csi.bhyoo.com/storage-class"},
		"class beside a protocol":  {map[string]string{"storage-class": "c", "protocol-ref": "p"}, "protocol-ref cannot stand beside"},
		"class beside backend":     {map[string]string{"storage-class": "c", "backend": "lvm: {}"}, "pillar-csi.bhyoo.com/backend cannot stand beside"},
		"class beside protocol":    {map[string]string{"storage-class": "c", "protocol": "nfs: {}"}, "pillar-csi.bhyoo.com/protocol cannot stand beside"},
		"class beside filesystem":  {map[string]string{"storage-class": "c", "filesystem": "{}"}, "filesystem cannot stand beside"},
		"class beside localAttach": {map[string]string{"storage-class": "c", "local-attach": "true"}, "local-attach cannot stand beside"},
		"store that is a path":     {map[string]string{"store-ref": "a/b", "protocol-ref": "p"}, "pillar-csi.bhyoo.com/store-ref: is no name of a Kubernetes object (got a/b); use lower-case letters"},
		"class in upper case":      {map[string]string{"storage-class": "Fast"}, "pillar-csi.bhyoo.com/storage-class: is no name of a Kubernetes object (got Fast)"},
		"claim that is a path":     {handwritten("csi.storage.k8s.io/pvc/name", "../x"), "csi.storage.k8s.io/pvc/name: is no name of a Kubernetes object (got ../x)"},
		"two faults":               {map[string]string{"store-ref": "s", "color": "red"}, "2 settings are refused: (1) parameters: unsupported"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseParameters(own(test.in))
			var bad Problems
			if !errors.As(err, &bad) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("ParseParameters(%q) = %v, want Problems with %q", test.in, err, test.want)
			}
		})
	}
}
