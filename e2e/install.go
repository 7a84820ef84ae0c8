package e2e

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillar-csi/pillar/e2e/cluster"
)

// placeholder is the binary's name in the lab overlay.
const placeholder = "/lab/bin/pillar-lab"

// Install applies pillar's manifests: the lab overlay, whose only purpose is the mounted
// binary, or the base itself when the image is to be used. deploy is the repository's
// folder of that name.
func Install(ctx context.Context, c *cluster.Cluster, deploy string) error {
	if os.Getenv(cluster.ImageVar) == "1" {
		return c.Apply(ctx, filepath.Join(deploy, "kustomize/base"))
	}
	return c.ApplyEdited(ctx, func(o *unstructured.Unstructured) error {
		replaceText(o.Object, placeholder, c.Pillar)
		return nil
	}, filepath.Join(deploy, "kustomize/overlays/lab"))
}

// replaceText replaces every string that equals old below a decoded YAML value.
func replaceText(value any, old, text string) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = replaceText(inner, old, text)
		}
	case []any:
		for i, inner := range v {
			v[i] = replaceText(inner, old, text)
		}
	case string:
		if v == old {
			return text
		}
	}
	return value
}
