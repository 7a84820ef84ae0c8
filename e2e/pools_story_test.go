//go:build lab

package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// TestZFS_life follows a volume of a ZFS pool: one zvol with the store's properties (B-210,
// B-216).
func TestZFS_life(t *testing.T) {
	life(t, "pillar-zfs", func(ctx context.Context, volume string) {
		zvols, err := world.storage.Zvols(ctx, dataset)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{dataset + "/" + volume}, zvols); diff != "" {
			t.Errorf("zvols (-want +got):\n%s", diff)
		}
		compression := onNode(ctx, t, "storage-1", "zfs get -H -o value,source compression "+dataset+"/"+volume)
		if compression != "lz4\tlocal" {
			t.Errorf("compression is %q, want the store's lz4", compression)
		}
	})
}

// TestThin_life follows a volume of a thin pool: one thin volume, which takes only what was
// written (B-220, B-225).
func TestThin_life(t *testing.T) {
	life(t, "pillar-thin", func(ctx context.Context, volume string) {
		got := onNode(ctx, t, "storage-1", "DM_DISABLE_UDEV=1 lvs --noheadings -o lv_name,pool_lv,segtype -S 'segtype = thin' "+thinVG+" 2>/dev/null")
		if diff := cmp.Diff([]string{volume, thinPool, "thin"}, strings.Fields(got)); diff != "" {
			t.Errorf("thin volumes (-want +got):\n%s", diff)
		}
	})
}

// life is a volume's from the claim to its end: written by a pod, looked at, grown under the
// pod, deleted, and nothing left.
func life(t *testing.T, class string, look func(ctx context.Context, volume string)) {
	ctx := begin(t)
	claimOf(ctx, t, class, class, "64Mi")
	volume := bound(ctx, t, class)
	pod(ctx, t, class, class, "worker-1")
	running(ctx, t, class)
	sum := sh(ctx, t, class, "head -c 4194304 /dev/urandom > /data/x; sync; sha256sum /data/x")
	look(ctx, volume)
	grow(ctx, t, class, class)
	if got := sh(ctx, t, class, "sha256sum /data/x"); got != sum {
		t.Errorf("after growing: %q, before: %q", got, sum)
	}
	drop(ctx, t, []string{class}, []string{class})
	nothingLeft(ctx, t)
}

// TestZFS_poolExported takes the pool away under the agent. Agent, store and claim say which
// pool is missing, volumes of the other store are made as before, and once the pool is back
// the claim that waited is served.
func TestZFS_poolExported(t *testing.T) {
	ctx := begin(t)
	if err := world.storage.ExportZPool(ctx, pool); err != nil {
		t.Fatal(err)
	}
	back := func() {
		t.Helper()
		if err := world.storage.ImportZPool(context.WithoutCancel(ctx), pool); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(back)

	claimOf(ctx, t, "pillar-zfs", "waits", "64Mi")
	event(ctx, t, "waits", dataset, "not imported")
	claim(ctx, t, "goes-on", "64Mi")
	bound(ctx, t, "goes-on")
	says(ctx, t, "PillarAgent", "storage-1", v1alpha1.AgentConnected, v1alpha1.ReasonAgentDegraded, pool, "zpool import "+pool)
	says(ctx, t, "PillarStore", pool, v1alpha1.PoolDiscovered, v1alpha1.ReasonPoolNotFound, pool)
	if err := ready(ctx, "PillarStore", vg); err != nil {
		t.Error(err)
	}

	back()
	bound(ctx, t, "waits")
	if err := ready(ctx, "PillarStore", pool); err != nil {
		t.Error(err)
	}
	says(ctx, t, "PillarAgent", "storage-1", v1alpha1.AgentConnected, v1alpha1.ReasonDialed)
	drop(ctx, t, nil, []string{"waits", "goes-on"})
	nothingLeft(ctx, t)
}

// says waits until a condition of one of pillar's objects has the reason, and the words in its
// message.
func says(ctx context.Context, t *testing.T, kind, name, condition, reason string, words ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetName(name)
	err := world.Until(ctx, o, func() (bool, error) {
		var seen struct {
			Status struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"status"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &seen); err != nil {
			return false, err
		}
		c := meta.FindStatusCondition(seen.Status.Conditions, condition)
		return c != nil && c.Reason == reason && containsAll(c.Message, words), nil
	})
	if err != nil {
		t.Fatalf("%s is not %s %q: %v", condition, reason, words, err)
	}
}
