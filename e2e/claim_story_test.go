//go:build lab

package e2e

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// containsAll tells whether a text has every word.
func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// drop deletes pods and claims with their volumes.
func drop(ctx context.Context, t *testing.T, pods, claims []string) {
	t.Helper()
	for _, p := range pods {
		gone(ctx, t, podNamed(p))
	}
	for _, c := range claims {
		pvc := claimNamed(c)
		if err := world.Objects.Get(ctx, keyOf(pvc), pvc); err != nil {
			t.Fatal(err)
		}
		gone(ctx, t, pvc)
		if pvc.Spec.VolumeName != "" {
			gone(ctx, t, volumeNamed(pvc.Spec.VolumeName))
		}
	}
}

// TestClaim_moves follows one volume from a claim through pods on both workers and back.
func TestClaim_moves(t *testing.T) {
	ctx := begin(t)
	claim(ctx, t, "moving", "64Mi")
	volume := bound(ctx, t, "moving")
	pod(ctx, t, "first", "moving", "worker-1")
	running(ctx, t, "first")
	sum := sh(ctx, t, "first", "head -c 4194304 /dev/urandom > /data/x; sync; sha256sum /data/x")

	lvs, err := world.storage.LVs(ctx, vg)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{volume}, lvs); diff != "" {
		t.Errorf("logical volumes (-want +got):\n%s", diff)
	}
	gone(ctx, t, podNamed("first"))
	pod(ctx, t, "second", "moving", "worker-2")
	running(ctx, t, "second")
	if got := sh(ctx, t, "second", "sha256sum /data/x"); got != sum {
		t.Errorf("read on worker-2: %q, written on worker-1: %q", got, sum)
	}
	drop(ctx, t, []string{"second"}, []string{"moving"})
	nothingLeft(ctx, t)
}

// TestClaim_sameNameAgain: a claim of an old name gets a new volume that shows nothing of
// the old one (N-9, H-76).
func TestClaim_sameNameAgain(t *testing.T) {
	ctx := begin(t)
	claim(ctx, t, "again", "64Mi")
	old := bound(ctx, t, "again")
	pod(ctx, t, "writer", "again", "worker-1")
	running(ctx, t, "writer")
	sh(ctx, t, "writer", "echo secret > /data/old; sync")
	drop(ctx, t, []string{"writer"}, []string{"again"})

	claim(ctx, t, "again", "64Mi")
	if fresh := bound(ctx, t, "again"); fresh == old {
		t.Errorf("the new claim has the volume of the old one: %s", fresh)
	}
	pod(ctx, t, "reader", "again", "worker-1")
	running(ctx, t, "reader")
	if got := sh(ctx, t, "reader", "ls /data"); strings.Contains(got, "old") {
		t.Errorf("the new volume shows files of the old one: %s", got)
	}
	drop(ctx, t, []string{"reader"}, []string{"again"})
	nothingLeft(ctx, t)
}

// TestClaim_volumeGroupFull: the claim waits and says why; nothing is left of the attempts,
// and a claim that fits still works.
func TestClaim_volumeGroupFull(t *testing.T) {
	ctx := begin(t)
	claim(ctx, t, "huge", "100Gi")
	event(ctx, t, "huge", "ResourceExhausted", vg)
	nothingLeft(ctx, t)
	claim(ctx, t, "small", "64Mi")
	bound(ctx, t, "small")
	drop(ctx, t, nil, []string{"small", "huge"})
	nothingLeft(ctx, t)
}

// TestClaim_volumeGroupMissing: the claim waits, says which group is missing, and is served
// once the group is back.
func TestClaim_volumeGroupMissing(t *testing.T) {
	ctx := begin(t)
	rename := func(from, to string) {
		if _, err := world.storage.Guest.Exec(ctx, "DM_DISABLE_UDEV=1 vgrename "+from+" "+to); err != nil {
			t.Fatal(err)
		}
	}
	rename(vg, "elsewhere")
	claim(ctx, t, "waiting", "64Mi")
	message := event(ctx, t, "waiting", vg)
	rename("elsewhere", vg)
	if !strings.Contains(message, "not found") && !strings.Contains(message, "not Ready") {
		t.Errorf("the event does not say that the group is missing: %s", message)
	}
	bound(ctx, t, "waiting")
	drop(ctx, t, nil, []string{"waiting"})
	nothingLeft(ctx, t)
}

// TestClaim_grows: a claim is edited to twice its size, and the running pod sees the room
// (B-450, B-456).
func TestClaim_grows(t *testing.T) {
	ctx := begin(t)
	claim(ctx, t, "growing", "64Mi")
	bound(ctx, t, "growing")
	pod(ctx, t, "tenant", "growing", "worker-1")
	running(ctx, t, "tenant")
	sum := sh(ctx, t, "tenant", "head -c 1048576 /dev/urandom > /data/x; sync; sha256sum /data/x")

	grow(ctx, t, "growing", "tenant")
	if got := sh(ctx, t, "tenant", "sha256sum /data/x"); got != sum {
		t.Errorf("after growing: %q, before: %q", got, sum)
	}
	drop(ctx, t, []string{"tenant"}, []string{"growing"})
	nothingLeft(ctx, t)
}

// grow edits a claim to 128 MiB and waits until its running pod sees them.
func grow(ctx context.Context, t *testing.T, name, pod string) {
	t.Helper()
	pvc := claimNamed(name)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"resources":{"requests":{"storage":"128Mi"}}}}`))
	if err := world.Objects.Patch(ctx, pvc, patch); err != nil {
		t.Fatal(err)
	}
	want := resource.MustParse("128Mi")
	if err := world.Until(ctx, pvc, func() (bool, error) {
		return pvc.Status.Capacity.Storage().Cmp(want) >= 0, nil
	}); err != nil {
		t.Fatal(err)
	}
	out := sh(ctx, t, pod, "df -k /data | awk 'END{print $2}'")
	if size, err := strconv.Atoi(strings.TrimSpace(out)); err != nil || size < 100<<10 {
		t.Errorf("the pod sees %q KiB, want over 100 MiB of the 128 it asked for", strings.TrimSpace(out))
	}
}
