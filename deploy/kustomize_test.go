// Package deploy holds what users apply: the kustomize base with its overlays, the samples,
// and what the image is made of. There is no code here, only tests of those files.
package deploy

import (
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// object is one rendered manifest.
type object = map[string]any

// render builds a kustomization and answers its objects by "Kind/name".
func render(t *testing.T, dir string) map[string]object {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		t.Fatalf("render %s: %v", dir, err)
	}
	objects := map[string]object{}
	for _, r := range resources.Resources() {
		m, err := r.Map()
		if err != nil {
			t.Fatalf("render %s: %v", r.CurId(), err)
		}
		objects[r.GetKind()+"/"+stripHash(r.GetName())] = m
	}
	return objects
}

var generated = regexp.MustCompile(`^(pillar-csi-agent-config)-[a-z0-9]{10}$`)

// stripHash takes the content hash off the generated name of the agents' configuration.
func stripHash(name string) string { return generated.ReplaceAllString(name, "$1") }

// TestOverlay_Lab holds the lab to what users deploy: only image names, backends, placement,
// ports and the mount of a freshly built binary may differ from the base.
func TestOverlay_Lab(t *testing.T) {
	base, lab := render(t, "kustomize/base"), render(t, "kustomize/overlays/lab")
	for _, objects := range []map[string]object{base, lab} {
		for key, o := range objects {
			forget(key, o)
		}
	}
	for _, o := range lab {
		forgetBinary(o)
	}
	maps.Copy(lab, missing(base, lab))
	for key, o := range lab {
		if diff := cmp.Diff(base[key], o); diff != "" {
			t.Errorf("the lab overlay changes more of %s than it may (-base +lab):\n%s", key, diff)
		}
	}
}

// missing answers a nil object for every key of base that lab lacks.
func missing(base, lab map[string]object) map[string]object {
	m := map[string]object{}
	for key := range base {
		if _, ok := lab[key]; !ok {
			m[key] = nil
		}
	}
	return m
}

// forget drops what any overlay may change.
func forget(key string, o object) {
	if key == "ConfigMap/pillar-csi-agent-config" {
		delete(o, "data")
		o["metadata"].(object)["name"] = "pillar-csi-agent-config"
	}
	pod := podOf(o)
	if pod == nil {
		return
	}
	for _, field := range []string{"nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"} {
		delete(pod, field)
	}
	for _, c := range containers(pod) {
		delete(c, "image")
		delete(c, "ports")
	}
	for _, v := range list(pod, "volumes") {
		if config, ok := v["configMap"].(object); ok {
			config["name"] = stripHash(config["name"].(string))
		}
	}
}

// forgetBinary drops the lab's binary, where it is exactly the one mount and command the
// lab may add.
func forgetBinary(o object) {
	pod := podOf(o)
	if pod == nil {
		return
	}
	drop(pod, "volumes", object{"name": "lab-bin", "hostPath": object{"path": "/lab/bin", "type": "Directory"}})
	for _, c := range containers(pod) {
		drop(c, "volumeMounts", object{"name": "lab-bin", "mountPath": "/lab/bin", "readOnly": true})
		if reflect.DeepEqual(c["command"], []any{"/lab/bin/pillar-lab"}) {
			delete(c, "command")
		}
	}
}

// drop removes the entries of a list that equal entry.
func drop(o object, field string, entry object) {
	kept := slices.DeleteFunc(slices.Clone(asList(o[field])), func(e any) bool { return reflect.DeepEqual(e, any(entry)) })
	if len(kept) < len(asList(o[field])) {
		o[field] = kept
	}
}

func podOf(o object) object {
	spec, _ := o["spec"].(object)
	template, _ := spec["template"].(object)
	pod, _ := template["spec"].(object)
	return pod
}

func containers(pod object) []object {
	return append(list(pod, "initContainers"), list(pod, "containers")...)
}

func list(o object, field string) (entries []object) {
	for _, e := range asList(o[field]) {
		entries = append(entries, e.(object))
	}
	return entries
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

// TestOverlay_Example holds the overlay that users copy to what its README says: another
// image and other pools, all else as in the base.
func TestOverlay_Example(t *testing.T) {
	base, example := render(t, "kustomize/base"), render(t, "kustomize/overlays/example")
	want, err := os.ReadFile("kustomize/overlays/example/agent.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := example["ConfigMap/pillar-csi-agent-config"]["data"]
	if diff := cmp.Diff(object{"agent.yaml": string(want)}, config); diff != "" {
		t.Errorf("the agents' configuration (-file +rendered):\n%s", diff)
	}
	for _, c := range containers(podOf(example["DaemonSet/pillar-csi-agent"])) {
		if got, want := c["image"], "registry.example/pillar:v0.1.0"; got != want {
			t.Errorf("image of %s = %s, want %s", c["name"], got, want)
		}
	}
	for _, objects := range []map[string]object{base, example} {
		for key, o := range objects {
			forget(key, o)
		}
	}
	if diff := cmp.Diff(base, example); diff != "" {
		t.Errorf("what else the example changes (-base +example):\n%s", diff)
	}
}

// TestBase_Containers holds every container to the pillar image and the sidecars' exact
// versions, and every pillar container to a role as its first argument.
func TestBase_Containers(t *testing.T) {
	const pillar = "ghcr.io/pillar-csi/pillar:v0.1.0"
	const sidecars = "registry.k8s.io/sig-storage/"
	want := map[string]string{
		"Deployment/pillar-csi-controller controller":      pillar + " controller",
		"Deployment/pillar-csi-controller csi-provisioner": sidecars + "csi-provisioner:v6.4.0",
		"Deployment/pillar-csi-controller csi-attacher":    sidecars + "csi-attacher:v4.13.0",
		"Deployment/pillar-csi-controller csi-resizer":     sidecars + "csi-resizer:v2.3.0",
		"Deployment/pillar-csi-controller liveness-probe":  sidecars + "livenessprobe:v2.20.0",
		"DaemonSet/pillar-csi-node modprobe":               pillar + " modprobe",
		"DaemonSet/pillar-csi-node node":                   pillar + " node",
		"DaemonSet/pillar-csi-node node-driver-registrar":  sidecars + "csi-node-driver-registrar:v2.18.0",
		"DaemonSet/pillar-csi-node liveness-probe":         sidecars + "livenessprobe:v2.20.0",
		"DaemonSet/pillar-csi-agent modprobe":              pillar + " modprobe",
		"DaemonSet/pillar-csi-agent agent":                 pillar + " agent",
	}
	got := map[string]string{}
	for key, o := range render(t, "kustomize/base") {
		for _, c := range containers(podOf(o)) {
			image := c["image"].(string)
			if image == pillar {
				image += fmt.Sprint(" ", asList(c["args"])[0])
			}
			got[key+" "+c["name"].(string)] = image
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("containers (-want +got):\n%s", diff)
	}
}

// TestBase_CSIDriver holds what Kubernetes is told of the driver (deploy.md 1.7).
func TestBase_CSIDriver(t *testing.T) {
	want := object{
		"attachRequired": true, "podInfoOnMount": true, "fsGroupPolicy": "File",
		"volumeLifecycleModes": []any{"Persistent"}, "storageCapacity": false,
	}
	if diff := cmp.Diff(any(want), render(t, "kustomize/base")["CSIDriver/pillar-csi.bhyoo.com"]["spec"]); diff != "" {
		t.Errorf("CSIDriver (-want +got):\n%s", diff)
	}
}

// TestBase_Modules holds the init containers to the kernel modules they load, in order
// (deploy.md 1.5).
func TestBase_Modules(t *testing.T) {
	want := map[string][]any{
		"DaemonSet/pillar-csi-agent": {"modprobe", "nvmet", "nvmet_tcp", "target_core_mod", "target_core_iblock", "iscsi_target_mod", "nfsd", "dm_thin_pool"},
		"DaemonSet/pillar-csi-node":  {"modprobe", "nvme_fabrics", "nvme_tcp", "dm_mod", "iscsi_tcp", "nfs", "nfsv4"},
	}
	objects := render(t, "kustomize/base")
	for key, args := range want {
		if diff := cmp.Diff(args, list(podOf(objects[key]), "initContainers")[0]["args"]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", key, diff)
		}
	}
}

// TestBase_HostPaths holds the pods to the host paths they may see, with their mode.
func TestBase_HostPaths(t *testing.T) {
	want := map[string]string{
		"node /lib/modules modprobe":                                               "ro",
		"node /var/lib/kubelet/plugins/pillar-csi.bhyoo.com node":                  "rw",
		"node /var/lib/kubelet/plugins/pillar-csi.bhyoo.com node-driver-registrar": "rw",
		"node /var/lib/kubelet/plugins/pillar-csi.bhyoo.com liveness-probe":        "rw",
		"node /var/lib/kubelet/plugins_registry node-driver-registrar":             "rw",
		"node /var/lib/kubelet/pods node":                                          "rw Bidirectional",
		"node /var/lib/kubelet/plugins/kubernetes.io/csi node":                     "rw Bidirectional",
		"node /var/lib/pillar-csi/node node":                                       "rw",
		"node /etc/nvme node":                                                      "rw",
		"node /etc/iscsi node":                                                     "rw",
		"node /dev node":                                                           "rw",
		"node /sys node":                                                           "rw HostToContainer",
		"agent /lib/modules modprobe":                                              "ro",
		"agent /var/lib/pillar-csi/agent agent":                                    "rw",
		"agent /sys/kernel/config agent":                                           "rw HostToContainer",
		"agent /dev agent":                                                         "rw",
		"agent /run/lock/lvm agent":                                                "rw",
	}
	got := map[string]string{}
	objects := render(t, "kustomize/base")
	for role, key := range map[string]string{
		"controller": "Deployment/pillar-csi-controller",
		"node":       "DaemonSet/pillar-csi-node",
		"agent":      "DaemonSet/pillar-csi-agent",
	} {
		hostPaths(role, podOf(objects[key]), got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("host paths (-want +got):\n%s", diff)
	}
}

// hostPaths adds "role hostPath container" -> mode for every mount of a host path.
func hostPaths(role string, pod object, got map[string]string) {
	paths := map[any]any{}
	for _, v := range list(pod, "volumes") {
		if host, ok := v["hostPath"].(object); ok {
			paths[v["name"]] = host["path"]
		}
	}
	for _, c := range containers(pod) {
		for _, m := range list(c, "volumeMounts") {
			path, ok := paths[m["name"]]
			if !ok {
				continue
			}
			mode := "rw"
			if m["readOnly"] == true {
				mode = "ro"
			}
			if p, ok := m["mountPropagation"]; ok {
				mode += fmt.Sprint(" ", p)
			}
			got[fmt.Sprint(role, " ", path, " ", c["name"])] = mode
		}
	}
}
