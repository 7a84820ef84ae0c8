package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// Keys the external provisioner consumes, or adds with --extra-create-metadata.
const (
	FSTypeKey       = "csi.storage.k8s.io/fstype"
	PVCNameKey      = "csi.storage.k8s.io/pvc/name"
	PVCNamespaceKey = "csi.storage.k8s.io/pvc/namespace"
)

// Documents are YAML texts of one layer; empty is absent.
type Documents struct {
	Backend, Protocol, Filesystem string
}

// Parameters are those of a StorageClass: either Class, or Store and Protocol.
type Parameters struct {
	Class           string // PillarStorageClass of a generated StorageClass
	Store, Protocol string // of a hand-written one
	Documents       Documents
	LocalAttach     bool
	FSType          string // reaches the controller as the capability's fs_type if the provisioner took it

	PVCName, PVCNamespace string
}

// ownParameters are all parameters under the prefix; a generated class has the first one
// alone (api.md 5).
var ownParameters = []string{
	v1alpha1.StorageClassKey, v1alpha1.StoreRefKey, v1alpha1.ProtocolRefKey,
	v1alpha1.BackendKey, v1alpha1.ProtocolKey, v1alpha1.FilesystemKey, v1alpha1.LocalAttachKey,
}

// nameParameters are those that name an object.
var nameParameters = []string{v1alpha1.StorageClassKey, v1alpha1.StoreRefKey, v1alpha1.ProtocolRefKey, PVCNameKey, PVCNamespaceKey}

// ParseParameters reads StorageClass parameters (api.md 5). Those of other prefixes are
// ignored unless known. The error is Problems.
func ParseParameters(params map[string]string) (Parameters, error) {
	var p Parameters
	var bad Problems
	into := map[string]*string{
		v1alpha1.StorageClassKey: &p.Class,
		v1alpha1.StoreRefKey:     &p.Store,
		v1alpha1.ProtocolRefKey:  &p.Protocol,
		v1alpha1.BackendKey:      &p.Documents.Backend,
		v1alpha1.ProtocolKey:     &p.Documents.Protocol,
		v1alpha1.FilesystemKey:   &p.Documents.Filesystem,
		FSTypeKey:                &p.FSType,
		PVCNameKey:               &p.PVCName,
		PVCNamespaceKey:          &p.PVCNamespace,
	}
	for _, key := range sorted(params) {
		value, ours := params[key], strings.HasPrefix(key, v1alpha1.KeyPrefix)
		switch field := into[key]; {
		case ours && !slices.Contains(ownParameters, key):
			bad = append(bad, &FieldError{
				Key: "parameters", Why: fmt.Sprintf("unsupported StorageClass parameter %q", key), Value: value,
				Fix: "remove it; supported: " + strings.Join(ownParameters, ", "),
			})
		case ours && strings.TrimSpace(value) == "":
			bad = append(bad, &FieldError{Key: key, Why: "is empty", Fix: "give it a value or remove it"})
		case key == v1alpha1.LocalAttachKey && value != "true" && value != "false":
			bad = append(bad, &FieldError{Key: key, Value: fmt.Sprintf("%q", value), Why: `must be "true" or "false"`})
		case key == v1alpha1.LocalAttachKey:
			p.LocalAttach = value == "true"
		case field != nil:
			*field = value
			if slices.Contains(nameParameters, key) {
				bad = append(bad, objectName(place{key: key}, value)...)
			}
		}
	}
	return p, append(bad, checkReferences(params)...).err()
}

// checkReferences insists on either a PillarStorageClass, or a store and a protocol.
func checkReferences(params map[string]string) (bad Problems) {
	if _, generated := params[v1alpha1.StorageClassKey]; generated {
		for _, key := range ownParameters[1:] {
			if value, ok := params[key]; ok {
				bad = append(bad, &FieldError{
					Key: "parameters", Path: key, Value: value,
					Why: "cannot stand beside " + v1alpha1.StorageClassKey, Fix: "remove one of them",
				})
			}
		}
		return bad
	}
	for _, key := range []string{v1alpha1.StoreRefKey, v1alpha1.ProtocolRefKey} {
		if _, ok := params[key]; !ok {
			bad = append(bad, &FieldError{
				Key: "parameters", Path: key, Why: "is missing",
				Fix: "name a PillarStore and a PillarProtocol, or use " + v1alpha1.StorageClassKey,
			})
		}
	}
	return bad
}
