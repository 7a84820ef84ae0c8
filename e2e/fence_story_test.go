//go:build lab

package e2e

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

func keyOf(o client.Object) types.NamespacedName { return client.ObjectKeyFromObject(o) }

// TestWorker_killed: while a worker is dead its volume stays its own (B-94, B-504), and after
// the reboot the same pod goes on with its data (B-314).
func TestWorker_killed(t *testing.T) {
	ctx := begin(t)
	dead, other := workersFor(ctx, t)
	claim(ctx, t, "survivor", "64Mi")
	volume := bound(ctx, t, "survivor")
	pod(ctx, t, "steady", "survivor", dead)
	running(ctx, t, "steady")
	sum := sh(ctx, t, "steady", "head -c 1048576 /dev/urandom > /data/x; sync; sha256sum /data/x")

	if err := world.KillNode(dead); err != nil {
		t.Fatal(err)
	}
	refusedElsewhere(ctx, t, volume, other)
	if err := world.StartNode(ctx, dead); err != nil {
		t.Fatal(err)
	}
	again(ctx, t, "steady")
	if got := sh(ctx, t, "steady", "sha256sum /data/x"); got != sum {
		t.Errorf("after the reboot: %q, before: %q", got, sum)
	}
	drop(ctx, t, []string{"steady"}, []string{"survivor"})
	nothingLeft(ctx, t)
}

// alarms are lines of a host's kernel that an outage of its target must not cause.
var alarms = regexp.MustCompile(`(?m)^.*(identifiers changed|IDs don't match|duplicate IDs|Buffer I/O error|EXT4-fs (error|warning)).*$`)

// TestStorage_killed: the storage node dies under a writing pod and comes back. Its exports
// are whole before a host can reach them, the pod goes on without a restart on the same mount
// of the same device, and no record it was told is on disk is lost (B-269, B-274, B-488).
func TestStorage_killed(t *testing.T) {
	ctx := begin(t)
	claim(ctx, t, "outage", "64Mi")
	bound(ctx, t, "outage")
	pod(ctx, t, "scribe", "outage", "worker-1")
	running(ctx, t, "scribe")
	sh(ctx, t, "scribe", `(i=0; while :; do i=$((i+1)); echo $i > /data/$i && sync && echo $i > /tmp/acknowledged; sleep 0.2; done) >/dev/null 2>&1 &`)
	before := written(ctx, t)
	mounts := volumeMounts(ctx, t, "worker-1")
	onNode(ctx, t, "worker-1", "echo the storage node goes down >/dev/kmsg")

	if err := world.KillNode("storage-1"); err != nil {
		t.Fatal(err)
	}
	if err := world.StartNode(ctx, "storage-1"); err != nil {
		t.Fatal(err)
	}
	after := before
	for after <= before+5 {
		after = written(ctx, t)
	}
	if lost := sh(ctx, t, "scribe", `for i in $(seq $(cat /tmp/acknowledged)); do [ "$(cat /data/$i)" = $i ] || echo $i; done`); lost != "" {
		t.Errorf("records lost: %s", lost)
	}
	p := podNamed("scribe")
	if err := world.Objects.Get(ctx, keyOf(p), p); err != nil {
		t.Fatal(err)
	}
	if n := p.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("the pod was restarted %d times", n)
	}
	if after := volumeMounts(ctx, t, "worker-1"); after != mounts {
		t.Errorf("mounts after the outage:\n%s\nbefore it:\n%s", after, mounts)
	}
	kernel := onNode(ctx, t, "worker-1", "dmesg | sed -n '/the storage node goes down/,$p'")
	if bad := alarms.FindAllString(kernel, -1); kernel == "" || bad != nil {
		t.Errorf("the worker's kernel says %q, want none of these:\n%s", bad, kernel)
	}
	if err := ready(ctx, "PillarAgent", "storage-1"); err != nil {
		t.Fatal(err)
	}
	drop(ctx, t, []string{"scribe"}, []string{"outage"})
	nothingLeft(ctx, t)
}

// volumeMounts are the mounts of NVMe devices on a node, with their IDs and numbers.
func volumeMounts(ctx context.Context, t *testing.T, node string) string {
	t.Helper()
	mounts := onNode(ctx, t, node, "grep ' /dev/nvme' /proc/self/mountinfo | sort")
	if mounts == "" {
		t.Fatalf("%s has no volume mounted", node)
	}
	return mounts
}

// onNode runs a script on a node, which must succeed, and answers what it said.
func onNode(ctx context.Context, t *testing.T, node, script string) string {
	t.Helper()
	out, err := world.Node(node).Exec(ctx, script)
	if err != nil {
		t.Fatalf("%s: %s: %v", node, script, err)
	}
	return strings.TrimSpace(out)
}

// written answers the newest record the writing pod was told is on disk.
func written(ctx context.Context, t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(sh(ctx, t, "scribe", "while ! cat /tmp/acknowledged 2>/dev/null; do sleep 0.1; done")))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// workersFor answers a worker that may die, because pillar's controller runs elsewhere, and
// the other one.
func workersFor(ctx context.Context, t *testing.T) (dead, other string) {
	t.Helper()
	pods := &corev1.PodList{}
	if err := world.Objects.List(ctx, pods, client.InNamespace("pillar-csi-system"),
		client.MatchingLabels{"app.kubernetes.io/component": "controller"}); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName == "worker-1" {
			return "worker-2", "worker-1"
		}
	}
	return "worker-1", "worker-2"
}

// again waits until a pod that ran before a reboot has been restarted and is ready.
func again(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	p := podNamed(name)
	err := world.Until(ctx, p, func() (bool, error) {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].Ready &&
			p.Status.ContainerStatuses[0].RestartCount > 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// refusedElsewhere asks for the volume on a second node, as the attach-detach controller
// would, and wants the specified refusal.
func refusedElsewhere(ctx context.Context, t *testing.T, volume, node string) {
	t.Helper()
	a := &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: "second-" + node},
		Spec: storagev1.VolumeAttachmentSpec{Attacher: "pillar-csi.bhyoo.com", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}
	if err := world.Objects.Create(ctx, a); err != nil {
		t.Fatal(err)
	}
	err := world.Until(ctx, a, func() (bool, error) {
		if a.Status.Attached {
			return false, errors.New("the volume was attached to a second node")
		}
		e := a.Status.AttachError
		return e != nil && strings.Contains(e.Message, "FailedPrecondition") &&
			strings.Contains(e.Message, "is published to another node"), nil
	})
	if err != nil {
		t.Error(err)
	}
	gone(ctx, t, a)
}

// TestPublish_secondNode: a live holder is not disturbed by a second attach.
func TestPublish_secondNode(t *testing.T) {
	ctx := begin(t)
	claim(ctx, t, "held", "64Mi")
	volume := bound(ctx, t, "held")
	pod(ctx, t, "holder", "held", "worker-1")
	running(ctx, t, "holder")
	refusedElsewhere(ctx, t, volume, "worker-2")
	sh(ctx, t, "holder", "echo still mine > /data/y; sync")
	drop(ctx, t, []string{"holder"}, []string{"held"})
	nothingLeft(ctx, t)
}

// TestFence_wrongToken: the agent refuses a call of another lifecycle, an older generation
// and none at all, and nothing changes (B-161, B-168, B-171).
func TestFence_wrongToken(t *testing.T) {
	ctx := begin(t)
	claim(ctx, t, "fenced", "64Mi")
	volume := bound(ctx, t, "fenced")
	agent, err := agentrpc.Dial("10.66.0.11:9500", agentrpc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer agent.Close()
	uid, err := lifecycle(ctx, volume)
	if err != nil {
		t.Fatal(err)
	}
	id := storage.VolumeID{Pool: vg, Name: volume}
	for name, token := range map[string]fencing.Token{
		"another lifecycle": {UID: "11111111-2222-3333-4444-555555555555", Generation: 99},
		"an old generation": {UID: uid, Generation: 1},
		"no token":          {},
	} {
		t.Run(name, func(t *testing.T) {
			if err := agent.UnexportVolume(ctx, token, storage.LVMLV, transport.NVMeTCP, id); !errors.Is(err, fencing.ErrStale) {
				t.Errorf("UnexportVolume(%s, %+v) = %v, want a fencing rejection", id, token, err)
			}
			if err := agent.DeleteVolume(ctx, token, storage.LVMLV, id); !errors.Is(err, fencing.ErrStale) {
				t.Errorf("DeleteVolume(%s, %+v) = %v, want a fencing rejection", id, token, err)
			}
		})
	}
	pod(ctx, t, "user", "fenced", "worker-1")
	running(ctx, t, "user")
	drop(ctx, t, []string{"user"}, []string{"fenced"})
	nothingLeft(ctx, t)
}

// lifecycle answers the UID of a volume's record.
func lifecycle(ctx context.Context, volume string) (string, error) {
	pvs := stateNamed(volume)
	err := world.Objects.Get(ctx, keyOf(pvs), pvs)
	return string(pvs.GetUID()), err
}
