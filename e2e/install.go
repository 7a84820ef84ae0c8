package e2e

import (
	"context"
	"os"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/e2e/cluster"
)

// Namespace is where pillar is installed.
const Namespace = "pillar-csi-system"

// placeholder is the binary's name in the lab overlay.
const placeholder = "/lab/bin/pillar-lab"

// Manifests is the folder below deploy that Install applies: the lab overlay, whose only
// purpose is the mounted binary, or the base itself when the image is to be used.
func Manifests() string {
	if os.Getenv(cluster.ImageVar) == "1" {
		return "kustomize/base"
	}
	return "kustomize/overlays/lab"
}

// Install applies pillar's manifests. deploy is the repository's folder of that name; pools, if
// not empty, is a file with another configuration of the agents than the base's. It returns when the controller is ready, as `kubectl rollout status`
// does: until then the API server refuses stores and classes, because it cannot ask anybody.
func Install(ctx context.Context, c *cluster.Cluster, deploy, pools string) error {
	if err := apply(ctx, c, deploy, pools); err != nil {
		return err
	}
	controller := client.ObjectKey{Namespace: Namespace, Name: "pillar-csi-controller"}
	return c.WaitCondition(ctx, appsv1.SchemeGroupVersion.WithKind("Deployment"), controller, "Available", metav1.ConditionTrue)
}

func apply(ctx context.Context, c *cluster.Cluster, deploy, pools string) error {
	return c.ApplyEdited(ctx, func(o *unstructured.Unstructured) error {
		replaceText(o.Object, placeholder, c.Pillar)
		if pools == "" || o.GetKind() != "ConfigMap" {
			return nil
		}
		config, err := os.ReadFile(pools)
		if err != nil {
			return err
		}
		return unstructured.SetNestedField(o.Object, string(config), "data", "agent.yaml")
	}, filepath.Join(deploy, Manifests()))
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
