package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// Annotations are those of a claim under the prefix.
type Annotations struct {
	Documents Documents
	Import    *Import // nil: make a new volume
}

// ownAnnotations are all annotations of a claim (api.md 4).
var ownAnnotations = append([]string{
	v1alpha1.BackendKey, v1alpha1.ProtocolKey, v1alpha1.FilesystemKey, importLVPolicy,
}, selectors...)

// ParseAnnotations reads a claim's annotations (api.md 4, block.md B-70). Selectors are
// held to their grammar; whether they fit the store is decided by Resolve. The error is
// Problems.
func ParseAnnotations(annotations map[string]string) (Annotations, error) {
	var a Annotations
	var bad Problems
	into := map[string]*string{
		v1alpha1.BackendKey:    &a.Documents.Backend,
		v1alpha1.ProtocolKey:   &a.Documents.Protocol,
		v1alpha1.FilesystemKey: &a.Documents.Filesystem,
	}
	for _, key := range sorted(annotations) {
		if !strings.HasPrefix(key, v1alpha1.KeyPrefix) {
			continue
		}
		switch value := annotations[key]; {
		case !slices.Contains(ownAnnotations, key):
			bad = append(bad, &FieldError{
				Key: "annotations", Why: fmt.Sprintf("unsupported PVC annotation %q", key), Value: value,
				Fix: "remove it; supported: " + strings.Join(ownAnnotations, ", "),
			})
		case into[key] != nil && strings.TrimSpace(value) == "":
			bad = append(bad, &FieldError{Key: key, Why: "is empty", Fix: emptyFix})
		case into[key] != nil:
			*into[key] = value
		}
	}
	source, more := parseImport(annotations)
	a.Import = source
	return a, append(bad, more...).err()
}
