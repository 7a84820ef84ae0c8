//go:build lab

package cluster

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestStartControlPlane(t *testing.T) {
	start := time.Now()
	c, err := StartControlPlane(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("ready after %v", time.Since(start))
	t.Cleanup(func() {
		start := time.Now()
		if err := c.Stop(context.Background()); err != nil {
			t.Errorf("Stop() = %v, want nil", err)
		}
		t.Logf("stopped after %v", time.Since(start))
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := c.Apply(ctx, "testdata/configmap.yaml"); err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
	if err := c.Until(ctx, cm, func() (bool, error) { return cm.Data["key"] == "value", nil }); err != nil {
		t.Error(err)
	}
	if err := c.Delete(ctx, "testdata/configmap.yaml"); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := c.Until(short, cm, func() (bool, error) { return true, nil }); err == nil {
		t.Errorf("Until of a deleted object = nil, want an error")
	}
}
