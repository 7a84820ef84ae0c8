package cluster

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// TestImageNames holds the images of the nodes to the manifests: what a pod names and no
// node has would be pulled from a registry that is not there.
func TestImageNames(t *testing.T) {
	samples, err := filepath.Glob("../../deploy/samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := load(nil, append(samples, "../../deploy/kustomize/base"))
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{pauseImage: true} // by containerd
	for _, obj := range objects {
		for _, spec := range [][]string{{"spec"}, {"spec", "template", "spec"}} {
			for _, kind := range []string{"initContainers", "containers"} {
				for _, name := range images(t, obj, append(slices.Clone(spec), kind)) {
					used[name] = true
				}
			}
		}
	}
	var names []string
	for name := range used {
		names = append(names, name)
	}
	slices.Sort(names)
	have := imageNames()
	slices.Sort(have)
	if diff := cmp.Diff(names, have); diff != "" {
		t.Errorf("images of the manifests and of the nodes differ (-used +have):\n%s", diff)
	}
}

func images(t *testing.T, obj *unstructured.Unstructured, path []string) []string {
	t.Helper()
	containers, _, err := unstructured.NestedSlice(obj.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range containers {
		name, _, err := unstructured.NestedString(c.(map[string]any), "image")
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// TestImageZFS: the lab's image has ZFS's programs from where the Dockerfile has them.
func TestImageZFS(t *testing.T) {
	dockerfile, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	if want := "ARG ZFS_SUITE=" + artifacts.ZFSSuite + "\n"; !strings.Contains(string(dockerfile), want) {
		t.Errorf("the Dockerfile has no line %q", want)
	}
}
