package v1alpha1

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// node is one field of a generated schema.
type node struct {
	Description string
	Properties  map[string]node
	Items       *node
	Validations []struct{ Rule, Message, MessageExpression, Reason string } `json:"x-kubernetes-validations"`
}

// manifests reads the generated CRDs: kind -> schema.
func manifests(t *testing.T) map[string]node {
	t.Helper()
	files, err := filepath.Glob("../manifests/pillar-csi.bhyoo.com_*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]node{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Schema struct{ OpenAPIV3Schema node }
				}
			}
		}
		if err := yaml.Unmarshal(data, &crd); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		kinds[crd.Spec.Names.Kind] = crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return kinds
}

// walk visits a field and all below it.
func walk(path string, n node, visit func(path string, n node)) {
	visit(path, n)
	for _, name := range slices.Sorted(maps.Keys(n.Properties)) {
		walk(path+"."+name, n.Properties[name], visit)
	}
	if n.Items != nil {
		for _, name := range slices.Sorted(maps.Keys(n.Items.Properties)) {
			walk(path+"[]."+name, n.Items.Properties[name], visit)
		}
	}
}

// TestManifests_Descriptions: `kubectl explain` says a sentence about every field.
func TestManifests_Descriptions(t *testing.T) {
	for kind, schema := range manifests(t) {
		walk(kind, schema, func(path string, n node) {
			text := strings.TrimSpace(n.Description)
			if path != kind+".metadata" && (len(text) < 4 || !strings.HasSuffix(text, ".") && !strings.Contains(text, "\n")) {
				t.Errorf("%s is described as %q, want a sentence", path, text)
			}
		})
	}
}

// TestManifests_Rules: every CEL rule has a plain message for old API servers, and one that
// compares with the old object says Forbidden.
func TestManifests_Rules(t *testing.T) {
	for kind, schema := range manifests(t) {
		walk(kind, schema, func(path string, n node) {
			for _, v := range n.Validations {
				if v.Message == "" {
					t.Errorf("%s: rule %q has no message", path, v.Rule)
				}
				if strings.Contains(v.Rule, "oldSelf") && v.Reason != "FieldValueForbidden" {
					t.Errorf("%s: rule %q has reason %q, want FieldValueForbidden", path, v.Rule, v.Reason)
				}
			}
		})
	}
}

// TestAddToScheme: the scheme and the manifests hold the same kinds.
func TestAddToScheme(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kinds := manifests(t)
	for kind := range kinds {
		if !scheme.Recognizes(GroupVersion.WithKind(kind)) || !scheme.Recognizes(GroupVersion.WithKind(kind+"List")) {
			t.Errorf("%s or its list is not registered", kind)
		}
	}
	if len(kinds) != 6 {
		t.Errorf("%d kinds, want 6", len(kinds))
	}
}
