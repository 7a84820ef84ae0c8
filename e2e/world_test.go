//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/e2e/cluster"
	"github.com/pillar-csi/pillar/e2e/lab"
)

const (
	samples   = "../deploy/samples/"
	vg        = "vg0"
	thinVG    = "vg1"
	thinPool  = "thin"
	pool      = "tank"
	dataset   = "tank/k8s" // that volumes of the sample's ZFS store are below
	namespace = "default"

	// patience is how long one step of a story may take; each ends with an event long before.
	patience = 90 * time.Second
)

// world is the one cluster all stories share. Each story cleans up after itself, and the
// next one starts by proving it.
var world struct {
	*cluster.Cluster
	storage Storage
	workers []Worker
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx := context.Background()
	l, err := lab.Open(ctx, lab.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer l.Close()
	world.Cluster, err = cluster.Start(ctx, l, cluster.Config{Workers: 2, StorageDisks: []string{"4GiB", "1GiB", "1GiB"}, Guest: withZFS})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start the cluster:", err)
		return 1
	}
	defer world.Close(ctx)
	world.storage = Storage{world.Node("storage-1")}
	world.workers = []Worker{{world.Node("worker-1")}, {world.Node("worker-2")}}
	if err := settle(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "install pillar:", err)
		return 1
	}
	return m.Run()
}

// withZFS loads ZFS's module on the storage node, and gives it room for ZFS's cache.
func withZFS(s *lab.GuestSpec) {
	if s.Name == "storage-1" {
		s.MemoryMB += 256
		s.Modules = append(s.Modules, "zfs")
	}
}

// settle installs pillar and applies the samples up to the class.
func settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err := world.storage.MakeVG(ctx, vg); err != nil {
		return err
	}
	if err := world.storage.MakeThinPool(ctx, thinVG, thinPool); err != nil {
		return err
	}
	if err := world.storage.MakeZPool(ctx, pool, "k8s"); err != nil {
		return err
	}
	if err := Install(ctx, world.Cluster, "../deploy", "../deploy/kustomize/overlays/example/agent.yaml"); err != nil {
		return err
	}
	for _, file := range []string{"1-agent.yaml", "2-store.yaml", "2-store-thin.yaml", "2-store-zfs.yaml",
		"3-protocol.yaml", "4-class.yaml", "4-class-thin.yaml", "4-class-zfs.yaml"} {
		if err := world.Apply(ctx, samples+file); err != nil {
			return err
		}
	}
	return errors.Join(
		ready(ctx, "PillarAgent", "storage-1"), ready(ctx, "PillarProtocol", "nvme"),
		ready(ctx, "PillarStore", vg), ready(ctx, "PillarStore", thinVG), ready(ctx, "PillarStore", pool),
		ready(ctx, "PillarStorageClass", "pillar-lvm"), ready(ctx, "PillarStorageClass", "pillar-thin"),
		ready(ctx, "PillarStorageClass", "pillar-zfs"))
}

func ready(ctx context.Context, kind, name string) error {
	gvk := schema.GroupVersionKind{Group: "pillar-csi.bhyoo.com", Version: "v1alpha1", Kind: kind}
	return world.WaitCondition(ctx, gvk, client.ObjectKey{Name: name}, "Ready", metav1.ConditionTrue)
}

// begin proves that the story before left nothing, and gives this one its time.
func begin(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	nothingLeft(ctx, t)
	return ctx
}

func nothingLeft(ctx context.Context, t *testing.T) {
	t.Helper()
	all := []error{world.storage.Left(ctx, []string{vg, thinVG}, dataset)}
	for _, w := range world.workers {
		all = append(all, w.Left(ctx))
	}
	if err := errors.Join(all...); err != nil {
		t.Fatal(err)
	}
}

// claim applies the sample claim under a name and with a size.
func claim(ctx context.Context, t *testing.T, name, size string) {
	t.Helper()
	claimOf(ctx, t, "pillar-lvm", name, size)
}

// claimOf is claim with another class.
func claimOf(ctx context.Context, t *testing.T, class, name, size string) {
	t.Helper()
	err := world.ApplyEdited(ctx, func(o *unstructured.Unstructured) error {
		o.SetName(name)
		return errors.Join(
			unstructured.SetNestedField(o.Object, class, "spec", "storageClassName"),
			unstructured.SetNestedField(o.Object, size, "spec", "resources", "requests", "storage"))
	}, samples+"5-claim.yaml")
	if err != nil {
		t.Fatal(err)
	}
}

// bound waits until the claim has its volume and answers the volume's name.
func bound(ctx context.Context, t *testing.T, name string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	pvc, err := world.WaitClaim(ctx, namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	return pvc.Spec.VolumeName
}

// pod applies the sample pod under a name, with a claim, on a node.
func pod(ctx context.Context, t *testing.T, name, claim, node string) {
	t.Helper()
	err := world.ApplyEdited(ctx, func(o *unstructured.Unstructured) error {
		o.SetName(name)
		volumes := []any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": claim}}}
		return errors.Join(
			unstructured.SetNestedField(o.Object, map[string]any{"kubernetes.io/hostname": node}, "spec", "nodeSelector"),
			unstructured.SetNestedField(o.Object, int64(1), "spec", "terminationGracePeriodSeconds"),
			unstructured.SetNestedSlice(o.Object, volumes, "spec", "volumes"))
	}, samples+"6-pod.yaml")
	if err != nil {
		t.Fatal(err)
	}
}

// running waits until the pod is ready.
func running(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := world.WaitPod(ctx, namespace, name); err != nil {
		t.Fatal(err)
	}
}

// sh runs a shell line in a pod's container.
func sh(ctx context.Context, t *testing.T, pod, line string) string {
	t.Helper()
	out, err := world.Exec(ctx, namespace, pod, "", "sh", "-c", line)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// gone deletes objects and waits for their end.
func gone(ctx context.Context, t *testing.T, objects ...client.Object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, o := range objects {
		if err := client.IgnoreNotFound(world.Objects.Delete(ctx, o)); err != nil {
			t.Fatal(err)
		}
		if err := world.Gone(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func claimNamed(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func volumeNamed(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// event waits until an event about the object contains the words.
func event(ctx context.Context, t *testing.T, name string, words ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e, err := world.WaitEvent(ctx, namespace, name, func(e *corev1.Event) bool { return containsAll(e.Message, words) })
	if err != nil {
		t.Fatalf("no event about %s says %q: %v", name, words, err)
	}
	return e.Message
}
