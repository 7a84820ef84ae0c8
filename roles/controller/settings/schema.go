package settings

import (
	"fmt"
	"math"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// kind is the type of a field.
type kind string

// The kinds, as messages name them.
const (
	whole  kind = "a whole number"
	text   kind = "text"
	truth  kind = "true or false"
	list   kind = "a list of text"
	keyval kind = "a mapping of text to text"
)

// rule is what a field accepts: the schema of the custom resources, which cannot see the
// text of documents. A test compares the two.
type rule struct {
	kind     kind
	min, max int64    // whole
	choices  []string // text, and whole if set
	says     string   // the choices, where there are too many to list
}

// wants says it in words.
func (r rule) wants() string {
	switch {
	case r.says != "":
		return r.says
	case len(r.choices) > 0:
		return "one of " + strings.Join(r.choices, ", ")
	case r.kind == whole && r.max == math.MaxInt32:
		return fmt.Sprintf("%d or more", r.min)
	case r.kind == whole:
		return fmt.Sprintf("%d to %d", r.min, r.max)
	}
	return string(r.kind)
}

func from(low int64) rule { return rule{kind: whole, min: low, max: math.MaxInt32} }

func oneOf(choices ...string) rule { return rule{kind: text, choices: choices} }

// transferSizes are 0 for no limit and the powers of two from 8192 bytes to 1 GiB.
func transferSizes() rule {
	r := rule{kind: whole, max: 1 << 30, choices: []string{"0"}, says: "0 or a power of two from 8192 to 1073741824"}
	for size := int64(8192); size <= r.max; size *= 2 {
		r.choices = append(r.choices, fmt.Sprint(size))
	}
	return r
}

// member is what one union member accepts, and what it refuses because it shapes what
// already exists (api.md 3.2).
type member struct {
	tunable    map[string]rule
	structural []string
}

var backendMembers = map[string]member{
	"zfs":       {map[string]rule{"properties": {kind: keyval}}, []string{"pool", "parentDataset", "volumeType"}},
	"lvm":       {map[string]rule{"provisioningMode": oneOf(v1alpha1.ProvisioningLinear, v1alpha1.ProvisioningThin)}, []string{"volumeGroup", "thinPool"}},
	"directory": {nil, []string{"logicalPool", "hostRoot"}},
}

var protocolMembers = map[string]member{
	"nvmeofTcp": {
		map[string]rule{
			"maxQueueSize":        {kind: whole, min: 16, max: 1024},
			"inCapsuleDataSize":   from(1024),
			"maxDataTransferSize": transferSizes(),
			"ctrlLossTmo":         from(0),
			"reconnectDelay":      from(0),
		},
		[]string{"port", "acl", "hdrDigest", "dataDigest"},
	},
	"iscsi": {
		map[string]rule{
			"loginTimeout":       from(1),
			"replacementTimeout": from(0),
			"noopOutInterval":    from(0),
			"noopOutTimeout":     from(0),
		},
		[]string{"port", "acl", "auth"},
	},
	"nfs": {nil, []string{"version", "port", "acl", "squash"}},
}

var filesystemFields = map[string]rule{
	"fsType":       oneOf(v1alpha1.FSTypeExt4, v1alpha1.FSTypeXFS, v1alpha1.FSTypeNFS),
	"mkfsOptions":  {kind: list},
	"mountOptions": {kind: list},
	"periodicTrim": {kind: truth},
}
