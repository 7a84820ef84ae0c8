package settings

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// member are the keys one union member accepts and those it refuses because they shape
// what already exists (api.md 3.2).
type member struct {
	tunable, structural []string
}

var backendMembers = map[string]member{
	"zfs":       {[]string{"properties"}, []string{"pool", "parentDataset", "volumeType"}},
	"lvm":       {[]string{"provisioningMode"}, []string{"volumeGroup", "thinPool"}},
	"directory": {nil, []string{"logicalPool", "hostRoot"}},
}

var protocolMembers = map[string]member{
	"nvmeofTcp": {
		[]string{"maxQueueSize", "inCapsuleDataSize", "maxDataTransferSize", "ctrlLossTmo", "reconnectDelay"},
		[]string{"port", "acl", "hdrDigest", "dataDigest"},
	},
	"iscsi": {
		[]string{"loginTimeout", "replacementTimeout", "noopOutInterval", "noopOutTimeout"},
		[]string{"port", "acl", "auth"},
	},
	"nfs": {nil, []string{"version", "port", "acl", "squash"}},
}

var filesystemFields = []string{"fsType", "mkfsOptions", "mountOptions", "periodicTrim"}

func decodeBackend(key, text string) (*v1alpha1.BackendOverrides, error) {
	o := &v1alpha1.BackendOverrides{}
	if err := decodeUnion(key, text, backendMembers, o); err != nil {
		return nil, err
	}
	if o.LVM != nil && o.LVM.ProvisioningMode != "" {
		err := oneOf(key, "lvm.provisioningMode", o.LVM.ProvisioningMode, v1alpha1.ProvisioningLinear, v1alpha1.ProvisioningThin)
		return o, err
	}
	return o, nil
}

func decodeProtocol(key, text string) (*v1alpha1.ProtocolOverrides, error) {
	o := &v1alpha1.ProtocolOverrides{}
	if err := decodeUnion(key, text, protocolMembers, o); err != nil {
		return nil, err
	}
	return o, checkProtocol(key, o)
}

func decodeFilesystem(key, text string) (*v1alpha1.Filesystem, error) {
	doc, err := parse(key, text)
	if err != nil {
		return nil, err
	}
	if err := known(key, "", doc, filesystemFields, nil); err != nil {
		return nil, err
	}
	fs := &v1alpha1.Filesystem{}
	if err := retype(key, doc, fs); err != nil {
		return nil, err
	}
	if fs.FSType == "" {
		return fs, nil
	}
	return fs, oneOf(key, "fsType", fs.FSType, v1alpha1.FSTypeExt4, v1alpha1.FSTypeXFS, v1alpha1.FSTypeNFS)
}

// decodeUnion reads a document with exactly one member into typed.
func decodeUnion(key, text string, members map[string]member, typed any) error {
	doc, err := parse(key, text)
	if err != nil {
		return err
	}
	names := sorted(members)
	if err := known(key, "", doc, names, nil); err != nil {
		return err
	}
	if len(doc) != 1 {
		return &FieldError{Key: key, Value: fmt.Sprintf("%d members", len(doc)), Why: "must set exactly one of " + strings.Join(names, ", ")}
	}
	for name, value := range doc {
		fields, ok := value.(map[string]any)
		if !ok {
			return &FieldError{Key: key, Path: name, Value: fmt.Sprint(value), Why: "must be a mapping"}
		}
		if err := known(key, name+".", fields, members[name].tunable, members[name].structural); err != nil {
			return err
		}
	}
	return retype(key, doc, typed)
}

// parse reads one YAML mapping and drops every null: an explicit null is the same as
// nothing.
func parse(key, text string) (map[string]any, error) {
	reader := yamlutil.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	var docs [][]byte
	for {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, &FieldError{Key: key, Why: "is not YAML: " + err.Error()}
		}
		if len(bytes.TrimSpace(doc)) > 0 {
			docs = append(docs, doc)
		}
	}
	if len(docs) != 1 {
		return nil, &FieldError{Key: key, Value: fmt.Sprintf("%d documents", len(docs)), Why: "must be one YAML document"}
	}
	var doc map[string]any
	if err := yaml.UnmarshalStrict(docs[0], &doc); err != nil {
		return nil, &FieldError{Key: key, Why: "is not a YAML mapping: " + err.Error()}
	}
	dropNulls(doc)
	return doc, nil
}

func dropNulls(m map[string]any) {
	for k, v := range m {
		if v == nil {
			delete(m, k)
		}
		if inner, ok := v.(map[string]any); ok {
			dropNulls(inner)
		}
	}
}

// known refuses structural and unknown fields, in a fixed order.
func known(key, prefix string, fields map[string]any, accepted, structural []string) error {
	for _, name := range sorted(fields) {
		switch {
		case slices.Contains(structural, name):
			return &FieldError{
				Key: key, Path: prefix + name, Value: fmt.Sprint(fields[name]),
				Why: "is structural and cannot be set per volume", Fix: "set it on the store or protocol object",
			}
		case !slices.Contains(accepted, name):
			return &FieldError{
				Key: key, Path: prefix + name, Value: fmt.Sprint(fields[name]),
				Why: "is an unknown field", Fix: "supported: " + orNone(accepted),
			}
		}
	}
	return nil
}

// retype moves the checked mapping into its type; a value of another type is refused
// with its path.
func retype(key string, doc map[string]any, typed any) error {
	raw, err := json.Marshal(doc)
	if err != nil {
		return &FieldError{Key: key, Why: "cannot be read: " + err.Error()}
	}
	err = json.Unmarshal(raw, typed)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return &FieldError{Key: key, Path: wrong.Field, Value: wrong.Value, Why: "must be a " + wrong.Type.String()}
	}
	if err != nil {
		return &FieldError{Key: key, Why: "cannot be read: " + err.Error()}
	}
	return nil
}

func backendMember(o *v1alpha1.BackendOverrides) string {
	switch {
	case o.ZFS != nil:
		return "zfs"
	case o.LVM != nil:
		return "lvm"
	}
	return "directory"
}

func protocolMember(o *v1alpha1.ProtocolOverrides) string {
	switch {
	case o.NVMeOFTCP != nil:
		return "nvmeofTcp"
	case o.ISCSI != nil:
		return "iscsi"
	}
	return "nfs"
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
