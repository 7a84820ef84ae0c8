//go:build lab

package scale

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// How much is done; fewer claims are for trying flags.
var claims = flag.Int("claims", 1000, "how many claims are made at once")

const (
	nodes  = 10
	agents = 2

	// memoryLimit is what the manifest gives each container, in bytes.
	memoryLimit = 256 << 20
)

// argsVar tries other flags: "csi-provisioner --worker-threads=10; csi-attacher --timeout=90s".
const argsVar = "PILLAR_SCALE_ARGS"

// patience is for a machine that has much else to do; alone it takes about three minutes.
const patience = 10 * time.Minute

// TestWorld_thousandClaims takes 1,000 claims through their whole life at once, with the
// controller killed in the middle of provisioning.
func TestWorld_thousandClaims(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := logs(t)
	w, err := Start(ctx, dir, Config{Agents: agents, Sidecars: true, Args: tried()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	r := &run{World: w, T: t}
	if err := r.makeNodes(ctx); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		act  func(context.Context) error
	}{
		{"provision", r.provision}, {"attach", r.attach}, {"detach", r.detach}, {"delete", r.remove},
	} {
		if err := r.measured(ctx, step.name, step.act); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	r.finalState()
}

// logs answers a folder for everything that stays when the test failed.
func logs(t *testing.T) string {
	dir, err := os.MkdirTemp("", "pillar-scale-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("logs are in %s", dir)
		} else {
			os.RemoveAll(dir)
		}
	})
	return dir
}

// run is one test's way through the steps.
type run struct {
	*World
	*testing.T
}

func tried() map[string][]string {
	args := map[string][]string{}
	for _, one := range strings.Split(os.Getenv(argsVar), ";") {
		if words := strings.Fields(one); len(words) > 1 {
			args[words[0]] = words[1:]
		}
	}
	return args
}

// measured logs how long a step took, what it asked of the API server for each volume, and
// what the programs hold.
func (r *run) measured(ctx context.Context, name string, step func(context.Context) error) error {
	before, err := r.Requests(ctx)
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := step(ctx); err != nil {
		return err
	}
	took := time.Since(begun)
	after, err := r.Requests(ctx)
	if err != nil {
		return err
	}
	asked := after.Since(before)
	writes, reads := asked.Split()
	r.Logf("%s: %d volumes in %.1f s; %.1f writes and %.1f reads a volume\n%v", name, *claims, took.Seconds(),
		float64(writes)/float64(*claims), float64(reads)/float64(*claims), asked)
	for _, container := range slices.Sorted(maps.Keys(r.containers)) {
		used, err := r.Usage(container)
		if err != nil {
			return err
		}
		r.Logf("%-16s %3d MB, at most %3d MB, %5.1f s CPU, started %d times", container,
			used.Memory>>20, used.Peak>>20, used.CPU.Seconds(), r.Starts(container))
		if used.Peak > memoryLimit {
			r.Errorf("%s held %d bytes, the manifest's limit is %d", container, used.Peak, memoryLimit)
		}
	}
	return nil
}

func nodeName(i int) string  { return fmt.Sprintf("node-%d", i%nodes) }
func claimName(i int) string { return fmt.Sprintf("claim-%d", i) }

// makeNodes makes what kubelet and node plugin would leave of themselves in the API.
func (r *run) makeNodes(ctx context.Context) error {
	return each(ctx, nodes, func(ctx context.Context, i int) error {
		named := metav1.ObjectMeta{Name: nodeName(i)}
		if err := r.API.Create(ctx, &corev1.Node{ObjectMeta: named}); err != nil {
			return err
		}
		named.Annotations = map[string]string{v1alpha1.HostNQNAnnotation: "nqn.2014-08.org.nvmexpress:uuid:" + nodeName(i)}
		return r.API.Create(ctx, &storagev1.CSINode{ObjectMeta: named, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: v1alpha1.DriverName, NodeID: nodeName(i)}},
		}})
	})
}

// claim makes so many claims, spread over the agents' classes.
func (r *run) claim(ctx context.Context, n int) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		class := AgentName(i % len(r.Agents))
		return r.API.Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: claimName(i)},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &class, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: gibibyte},
			},
		})
	})
}

func (r *run) bound(ctx context.Context, n int) error {
	return r.Until(ctx, &corev1.PersistentVolumeClaimList{}, n, func(o client.Object) bool {
		return o.(*corev1.PersistentVolumeClaim).Status.Phase == corev1.ClaimBound
	})
}

// provision makes all claims and kills the controller while it is at it.
func (r *run) provision(ctx context.Context) error {
	if err := r.claim(ctx, *claims); err != nil {
		return err
	}
	err := r.Until(ctx, &v1alpha1.PillarVolumeStateList{}, *claims/3, func(o client.Object) bool {
		return o.(*v1alpha1.PillarVolumeState).Status.Phase == v1alpha1.PhaseReady
	})
	if err != nil {
		return err
	}
	r.Kill(Controller)
	return r.bound(ctx, *claims)
}

// attach makes a VolumeAttachment for every volume, a tenth of them on each node.
func (r *run) attach(ctx context.Context) error {
	list := &corev1.PersistentVolumeList{}
	if err := r.API.List(ctx, list); err != nil {
		return err
	}
	err := each(ctx, len(list.Items), func(ctx context.Context, i int) error {
		return r.API.Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "attach-" + list.Items[i].Name},
			Spec: storagev1.VolumeAttachmentSpec{
				Attacher: v1alpha1.DriverName, NodeName: nodeName(i),
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &list.Items[i].Name},
			},
		})
	})
	if err != nil {
		return err
	}
	err = r.Until(ctx, &storagev1.VolumeAttachmentList{}, *claims, func(o client.Object) bool {
		return o.(*storagev1.VolumeAttachment).Status.Attached
	})
	if n := r.granted(); err == nil && n != *claims {
		r.Errorf("agents admit %d initiators, want %d", n, *claims)
	}
	return err
}

func (r *run) granted() (n int) {
	for _, a := range r.Agents {
		n += a.Granted()
	}
	return n
}

// deleteAll deletes every object of the kind, one by one: the API server may run out of
// time in a call for all.
func (r *run) deleteAll(ctx context.Context, list client.ObjectList) error {
	if err := r.API.List(ctx, list); err != nil {
		return err
	}
	objects, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	return each(ctx, len(objects), func(ctx context.Context, i int) error {
		return client.IgnoreNotFound(r.API.Delete(ctx, objects[i].(client.Object)))
	})
}

func (r *run) detach(ctx context.Context) error {
	if err := r.deleteAll(ctx, &storagev1.VolumeAttachmentList{}); err != nil {
		return err
	}
	err := r.Gone(ctx, &storagev1.VolumeAttachmentList{})
	if n := r.granted(); err == nil && n != 0 {
		r.Errorf("agents admit %d initiators of detached volumes, want 0", n)
	}
	return err
}

func (r *run) remove(ctx context.Context) error {
	if err := r.deleteAll(ctx, &corev1.PersistentVolumeClaimList{}); err != nil {
		return err
	}
	for _, list := range []client.ObjectList{
		&corev1.PersistentVolumeClaimList{}, &corev1.PersistentVolumeList{}, &v1alpha1.PillarVolumeStateList{},
	} {
		if err := r.Gone(ctx, list); err != nil {
			return err
		}
	}
	return nil
}

// finalState: every backend was made once, nothing is left, and only the controller that
// was killed, and those that lost it, started again.
func (r *run) finalState() {
	made := 0
	for i, a := range r.Agents {
		volumes, exports, creates := a.Volumes()
		if len(volumes)+len(exports) > 0 {
			r.Errorf("%s still has volumes %v and exports %v", AgentName(i), volumes, exports)
		}
		for volume, n := range creates {
			if n != 1 {
				r.Errorf("%s made %s %d times, want once", AgentName(i), volume, n)
			}
		}
		made += len(creates)
		r.Logf("%s was called: %v", AgentName(i), a.Calls())
	}
	if made != *claims {
		r.Errorf("agents made %d volumes, want %d", made, *claims)
	}
	if n := r.Starts(Controller); n != 2 {
		r.Errorf("the controller was started %d times, want 2", n)
	}
}
