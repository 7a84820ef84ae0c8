//go:build lab

package scale

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/e2e/cluster"
)

// simulated is `pillar agent --dry-run --serve` as a process, and what the API knows of it.
type simulated struct {
	run
	args    []string
	process *cluster.Process
}

// classes of the simulated agent, each with a store of its name.
var classes = map[string]v1alpha1.Backend{
	"lvm": {LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg0"}},
	"zfs": {ZFS: &v1alpha1.ZFSBackend{Pool: "tank", ParentDataset: "k8s/volumes"}},
}

const dryRunConfig = "backends: [{lvm: {volumeGroup: vg0}}, {zfs: {pool: tank, parentDataset: k8s/volumes}}]"

// TestWorld_dryRun takes claims through their life in a cluster whose only agent simulates,
// as Kind's does where no kernel module can be loaded: they are bound, attached, expanded,
// survive the agent, and leave nothing.
func TestWorld_dryRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := Start(ctx, logs(t), Config{Sidecars: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	s := &simulated{run: run{World: w, T: t}}
	for _, step := range []struct {
		name string
		act  func(context.Context) error
	}{
		{"nodes", s.makeNodes}, {"agent", s.start}, {"configure", s.configure}, {"claim", s.claim}, {"attach", s.attach},
		{"restart", s.restart}, {"expand", s.expand}, {"detach", s.detach}, {"delete", s.remove},
	} {
		if err := step.act(ctx); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	s.told()
}

func (s *simulated) start(ctx context.Context) error {
	if s.args == nil {
		port, err := freePort()
		if err != nil {
			return err
		}
		config := filepath.Join(s.dir, "agent.yaml")
		if err := os.WriteFile(config, []byte(dryRunConfig), 0o600); err != nil {
			return err
		}
		s.args = []string{"agent", "--dry-run", "--serve", "--config", config, "--listen", "127.0.0.1:" + port, "--state-dir", filepath.Join(s.dir, "state")}
	}
	var err error
	s.process, err = cluster.StartProcess(s.logDir(), filepath.Join(s.dir, "pillar"), nil, s.args...)
	if err == nil {
		s.Cleanup(func() { s.process.Stop(context.WithoutCancel(ctx)) })
	}
	return err
}

// logDir is apart from the controller's, whose log has the same name.
func (s *simulated) logDir() string {
	dir := filepath.Join(s.dir, "simulated")
	_ = os.MkdirAll(dir, 0o755) // else the start says so
	return dir
}

func (s *simulated) configure(ctx context.Context) error {
	i := slices.Index(s.args, "--listen")
	port, err := strconv.Atoi(strings.TrimPrefix(s.args[i+1], "127.0.0.1:"))
	if err != nil {
		return err
	}
	objects := []client.Object{&v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: "simulated"},
		Spec: v1alpha1.PillarAgentSpec{External: &v1alpha1.ExternalAgent{Address: "127.0.0.1", Port: int32(port)}}}}
	for name, backend := range classes {
		named := metav1.ObjectMeta{Name: name}
		objects = append(objects,
			&v1alpha1.PillarStore{ObjectMeta: named, Spec: v1alpha1.PillarStoreSpec{AgentRef: "simulated", Backend: backend}},
			&v1alpha1.PillarStorageClass{ObjectMeta: named, Spec: v1alpha1.PillarStorageClassSpec{StoreRef: name, ProtocolRef: protocolName}})
	}
	for _, o := range objects {
		if err := s.API.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	for name := range classes {
		gvk := v1alpha1.GroupVersion.WithKind("PillarStorageClass")
		if err := s.WaitCondition(ctx, gvk, client.ObjectKey{Name: name}, v1alpha1.Ready, metav1.ConditionTrue); err != nil {
			return err
		}
	}
	return nil
}

func (s *simulated) claim(ctx context.Context) error {
	for name := range classes {
		err := s.API.Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: &name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: gibibyte},
			},
		})
		if err != nil {
			return err
		}
	}
	return s.Until(ctx, &corev1.PersistentVolumeClaimList{}, len(classes), func(o client.Object) bool {
		return o.(*corev1.PersistentVolumeClaim).Status.Phase == corev1.ClaimBound
	})
}

func (s *simulated) attach(ctx context.Context) error {
	list := &corev1.PersistentVolumeList{}
	if err := s.API.List(ctx, list); err != nil {
		return err
	}
	for i := range list.Items {
		err := s.API.Create(ctx, &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "attach-" + list.Items[i].Name},
			Spec: storagev1.VolumeAttachmentSpec{Attacher: v1alpha1.DriverName, NodeName: nodeName(i),
				Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &list.Items[i].Name}},
		})
		if err != nil {
			return err
		}
	}
	return s.Until(ctx, &storagev1.VolumeAttachmentList{}, len(classes), func(o client.Object) bool {
		return o.(*storagev1.VolumeAttachment).Status.Attached
	})
}

// restart kills the agent. Its pools are there when it is back, its target is not, as after a
// power cut: the controller restores every export.
func (s *simulated) restart(ctx context.Context) error {
	s.process.Kill()
	if err := s.start(ctx); err != nil {
		return err
	}
	const reachable = "link nvmet/ports/"
	for strings.Count(s.logged(), reachable) < 2*len(classes) {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait for the exports to come back: %w", ctx.Err())
		}
	}
	return nil
}

func (s *simulated) logged() string {
	data, _ := os.ReadFile(filepath.Join(s.logDir(), "pillar.log"))
	return string(data)
}

func (s *simulated) expand(ctx context.Context) error {
	for name := range classes {
		pvc := &corev1.PersistentVolumeClaim{}
		if err := s.API.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, pvc); err != nil {
			return err
		}
		before := pvc.DeepCopy()
		pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		if err := s.API.Patch(ctx, pvc, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	return s.Until(ctx, &corev1.PersistentVolumeList{}, len(classes), func(o client.Object) bool {
		capacity := o.(*corev1.PersistentVolume).Spec.Capacity[corev1.ResourceStorage]
		return capacity.Value() >= 2<<30
	})
}

// told wants in the agent's log what a host would have been made to do.
func (s *simulated) told() {
	log := s.logged()
	for _, would := range []string{
		"run lvcreate", "run lvextend", "run lvremove", "run zfs create", "run zfs set volsize=2147483648", "run zfs destroy",
		"allowed_hosts/nqn.2014-08.org.nvmexpress:uuid:node-", "rmdir nvmet/subsystems/",
	} {
		if !strings.Contains(log, would) {
			s.Errorf("the agent's log lacks %q", would)
		}
	}
}
