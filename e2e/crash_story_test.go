//go:build lab

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func stateNamed(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.GroupVersionKind{Group: "pillar-csi.bhyoo.com", Version: "v1alpha1", Kind: "PillarVolumeState"})
	o.SetName(name)
	return o
}

// TestAgent_notRunning: a claim waits and its event names the agent; nothing is made. Once
// the agent runs again the claim is served.
func TestAgent_notRunning(t *testing.T) {
	ctx := begin(t)
	set := &appsv1.DaemonSet{}
	set.Namespace, set.Name = "pillar-csi-system", "pillar-csi-agent"
	place := func(selector string) {
		patch := fmt.Sprintf(`{"spec":{"template":{"spec":{"nodeSelector":%s}}}}`, selector)
		ctx := context.WithoutCancel(ctx)
		if err := world.Objects.Patch(ctx, set, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	place(`{"pillar-csi.bhyoo.com/nowhere":"true"}`)
	t.Cleanup(func() { place(`{"pillar-csi.bhyoo.com/nowhere":null}`) })
	if err := world.Until(ctx, set, func() (bool, error) { return set.Status.CurrentNumberScheduled == 0, nil }); err != nil {
		t.Fatal(err)
	}
	if err := noAgent(ctx); err != nil {
		t.Fatal(err)
	}
	claim(ctx, t, "patient", "64Mi")
	event(ctx, t, "patient", "Unavailable", "storage-1")
	nothingLeft(ctx, t)

	place(`{"pillar-csi.bhyoo.com/nowhere":null}`)
	bound(ctx, t, "patient")
	drop(ctx, t, nil, []string{"patient"})
	nothingLeft(ctx, t)
}

// noAgent waits until no agent process is left on the storage node.
func noAgent(ctx context.Context) error {
	_, err := world.storage.Guest.Exec(ctx, `for i in $(seq 100); do pgrep -f '[p]illar.* agent' >/dev/null || exit 0; sleep 0.2; done; exit 1`)
	return err
}

// TestRoles_killedAtRandom kills each role's process with SIGKILL once, at a random moment of
// a volume's way to its pod and back (B-4, B-7). Everything still arrives.
func TestRoles_killedAtRandom(t *testing.T) {
	ctx := begin(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, role := range []string{"controller", "agent", "node"} {
		name := "killed-" + role
		victim := make(chan error, 1)
		pause := time.Duration(random.IntN(2500)) * time.Millisecond
		go func() {
			time.Sleep(pause)
			victim <- kill9(ctx, role)
		}()
		claim(ctx, t, name, "64Mi")
		pod(ctx, t, name, name, "worker-1")
		running(ctx, t, name)
		if err := <-victim; err != nil {
			t.Fatal(err)
		}
		sh(ctx, t, name, "echo alive > /data/x; sync")
		drop(ctx, t, []string{name}, []string{name})
		nothingLeft(ctx, t)
	}
}

// kill9 kills a role's process wherever it runs.
func kill9(ctx context.Context, role string) error {
	killed := false
	for _, node := range []string{"storage-1", "worker-1", "worker-2"} {
		out, err := world.Node(node).Exec(ctx, `pkill -9 -f '^/[^ ]*pillar[^ ]* `+role+`( |$)' && echo killed || [ $? = 1 ]`)
		if err != nil {
			return err
		}
		killed = killed || len(out) > 0
	}
	if !killed {
		return errors.New("found no process of " + role)
	}
	return nil
}
