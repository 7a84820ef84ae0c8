//go:build lab

package cluster

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pillar-csi/pillar/e2e/lab"
)

// patience is how long one step may take on a machine that does other work as well.
const patience = time.Minute

func TestCluster(t *testing.T) {
	c := testCluster(t)
	t.Run("a pod runs, logs and is entered", func(t *testing.T) { testPod(t, c) })
	t.Run("a pod reaches the API server", func(t *testing.T) { testReach(t, c) })
	t.Run("a rebooted worker is the same node", func(t *testing.T) { testReboot(t, c) })
}

func testCluster(t *testing.T) *Cluster {
	begin := time.Now()
	l, err := lab.Open(t.Context(), lab.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(t.Context(), l, Config{})
	if err != nil {
		l.Close()
		t.Fatal(err)
	}
	t.Logf("three nodes are Ready after %v", time.Since(begin))
	t.Cleanup(func() {
		begin := time.Now()
		if err := c.Close(context.Background()); err != nil {
			t.Errorf("Close() = %v, want nil", err)
		}
		if err := l.Close(); err != nil {
			t.Errorf("close the lab: %v", err)
		}
		t.Logf("closed after %v", time.Since(begin))
	})
	return c
}

func testPod(t *testing.T, c *Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, err := c.Node("worker-1").Exec(ctx, "mkdir -p /var/lib/shown; echo hello > /var/lib/shown/file"); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	// kubectl is the one client at hand that finds the API server as every pod does.
	kubectl := func(pod *unstructured.Unstructured) error {
		dir := "/cache/" + filepath.Base(filepath.Dir(c.Kubectl))
		volumes, _, err := unstructured.NestedSlice(pod.Object, "spec", "volumes")
		volumes = append(volumes, map[string]any{"name": "programs", "hostPath": map[string]any{"path": dir}})
		return errors.Join(err, unstructured.SetNestedSlice(pod.Object, volumes, "spec", "volumes"))
	}
	if err := c.ApplyEdited(ctx, kubectl, "testdata/pod.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitPod(ctx, "default", "shows"); err != nil {
		t.Fatal(err)
	}
	t.Logf("pod ready after %v", time.Since(begin))
	if _, err := c.WaitLog(ctx, "default", "shows", "", "hello"); err != nil {
		t.Error(err)
	}
	logs, err := c.Logs(ctx, "default", "shows", "")
	if err != nil || logs != "hello\n" {
		t.Errorf("Logs = %q, %v, want hello", logs, err)
	}
	out, err := c.Exec(ctx, "default", "shows", "", "cat", "/shown/file")
	if err != nil || out != "hello\n" {
		t.Errorf("Exec(cat) = %q, %v, want hello", out, err)
	}
	if _, err := c.Exec(ctx, "default", "shows", "", "false"); err == nil {
		t.Error("Exec(false) = nil, want an error")
	}
}

func testReach(t *testing.T, c *Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := c.Exec(ctx, "default", "shows", "", "/programs/kubectl", "get", "--raw", "/healthz")
	if err != nil || strings.TrimSpace(out) != "ok" {
		t.Errorf("the API server seen from a pod: %q, %v, want ok", out, err)
	}
}

func testReboot(t *testing.T, c *Cluster) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	id, err := c.Node("worker-1").Get(ctx, "/etc/machine-id")
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if err := c.RebootNode(ctx, "worker-1"); err != nil {
		t.Fatal(err)
	}
	t.Logf("Ready again after %v", time.Since(begin))
	if again, err := c.Node("worker-1").Get(ctx, "/etc/machine-id"); err != nil || string(again) != string(id) {
		t.Errorf("machine-id after the reboot = %q, %v, want %q", again, err, id)
	}
	// The old kubelet's last word on the pod still is that it is ready.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shows"}}
	again := func() (bool, error) {
		return podReady(pod) && pod.Status.ContainerStatuses[0].RestartCount == 1, nil
	}
	if err := c.Until(ctx, pod, again); err != nil {
		t.Error(err)
	}
	t.Logf("its pod is ready after %v", time.Since(begin))
	begin = time.Now()
	if err := c.Delete(ctx, "testdata/pod.yaml"); err != nil {
		t.Error(err)
	}
	t.Logf("pod deleted after %v", time.Since(begin))
}
