package deploy

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// TestSamples reads every sample as the API server would, with no unknown field, and holds
// them to the names the README and the demo use.
func TestSamples(t *testing.T) {
	kinds := map[string]func() runtime.Object{
		"PillarAgent":           func() runtime.Object { return &v1alpha1.PillarAgent{} },
		"PillarStore":           func() runtime.Object { return &v1alpha1.PillarStore{} },
		"PillarProtocol":        func() runtime.Object { return &v1alpha1.PillarProtocol{} },
		"PillarStorageClass":    func() runtime.Object { return &v1alpha1.PillarStorageClass{} },
		"PersistentVolumeClaim": func() runtime.Object { return &corev1.PersistentVolumeClaim{} },
		"Pod":                   func() runtime.Object { return &corev1.Pod{} },
	}
	files, err := filepath.Glob("samples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal(data, &head); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if kinds[head.Kind] == nil {
			t.Errorf("%s: unexpected kind %q", file, head.Kind)
			continue
		}
		if err := yaml.UnmarshalStrict(data, kinds[head.Kind]()); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		got[filepath.Base(file)] = head.Kind + "/" + head.Metadata.Name
	}
	want := map[string]string{
		"1-agent.yaml":      "PillarAgent/storage-1",
		"2-store.yaml":      "PillarStore/vg0",
		"2-store-thin.yaml": "PillarStore/vg1",
		"2-store-zfs.yaml":  "PillarStore/tank",
		"3-protocol.yaml":   "PillarProtocol/nvme",
		"4-class.yaml":      "PillarStorageClass/pillar-lvm",
		"4-class-thin.yaml": "PillarStorageClass/pillar-thin",
		"4-class-zfs.yaml":  "PillarStorageClass/pillar-zfs",
		"5-claim.yaml":      "PersistentVolumeClaim/demo-data",
		"6-pod.yaml":        "Pod/demo",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
}

// TestSamples_content: a host that looks into volumes opens what is inside of them, and may
// write to it (hazards.md H-15); without an ACL any host may connect.
func TestSamples_content(t *testing.T) {
	store, protocol := &v1alpha1.PillarStore{}, &v1alpha1.PillarProtocol{}
	for file, obj := range map[string]runtime.Object{"2-store-zfs.yaml": store, "3-protocol.yaml": protocol} {
		data, err := os.ReadFile(filepath.Join("samples", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(data, obj); err != nil {
			t.Fatal(err)
		}
	}
	if got := store.Spec.Backend.ZFS.Properties["volmode"]; got != "dev" {
		t.Errorf("volmode of the ZFS store is %q, want dev", got)
	}
	if !protocol.Spec.Protocol.NVMeOFTCP.ACL {
		t.Error("the protocol has no ACL")
	}
}
