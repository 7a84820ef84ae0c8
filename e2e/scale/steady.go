package scale

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// Period is how often the controller looks at every export (api.md 2).
const Period = 30 * time.Second

// Cost is what a period costs in which nothing changes.
type Cost struct {
	Writes, Reads float64 // requests to the API server, leases and watches left out
	AgentCalls    float64 // of all agents
	Controller    Usage   // CPU: of one period
	Asked         Requests
}

// Fill makes n Ready volumes, spread over the agents, with their PersistentVolume and
// claim, as if they had been provisioned, and returns when the controller has
// reported every export.
func (w *World) Fill(ctx context.Context, n int) error {
	err := each(ctx, n, func(ctx context.Context, i int) error {
		return w.fill(ctx, i, AgentName(i%len(w.Agents)))
	})
	if err != nil {
		return err
	}
	return w.Until(ctx, &v1alpha1.PillarVolumeStateList{}, n, func(o client.Object) bool {
		return meta.IsStatusConditionTrue(o.(*v1alpha1.PillarVolumeState).Status.Conditions, v1alpha1.ExportReconciled)
	})
}

func (w *World) fill(ctx context.Context, i int, agent string) error {
	claim := readyClaim(i, agent)
	if err := w.API.Create(ctx, claim); err != nil {
		return fmt.Errorf("create claim: %w", err)
	}
	record := readyRecord(agent, claim)
	status := record.Status
	if err := w.API.Create(ctx, record); err != nil {
		return fmt.Errorf("create volume state: %w", err)
	}
	record.Status = status
	if err := w.API.Status().Update(ctx, record); err != nil {
		return fmt.Errorf("write status of volume state: %w", err)
	}
	return w.API.Create(ctx, readyVolume(agent, claim))
}

var gibibyte = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}

// readyClaim is bound by name; nobody here fills in its status.
func readyClaim(i int, agent string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("claim-%d", i)},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &agent, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: gibibyte}, VolumeName: fmt.Sprintf("pvc-%d", i),
		},
	}
}

// readyRecord is a record as CreateVolume leaves it.
func readyRecord(agent string, claim *corev1.PersistentVolumeClaim) *v1alpha1.PillarVolumeState {
	name := claim.Spec.VolumeName
	id := Pool + "/" + name
	nvme := v1alpha1.NVMeOFTCP{Port: 4420, ACL: true}
	v := &v1alpha1.PillarVolumeState{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Finalizers: []string{v1alpha1.VolumeStateFinalizer},
			Annotations: map[string]string{v1alpha1.SuccessRecordedAnnotation: "true", v1alpha1.ProtocolRefAnnotation: protocolName},
		},
		Spec: v1alpha1.PillarVolumeStateSpec{
			VolumeID: agent + "/nvmeof-tcp/lvm-lv/" + id, AgentVolumeID: id, AgentRef: agent,
			BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp", CapacityBytes: 1 << 30,
			ClaimRef: &v1alpha1.ClaimRef{UID: string(claim.UID), Namespace: claim.Namespace, Name: claim.Name},
			Resolved: &v1alpha1.Resolved{
				Backend:    v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: Pool, ProvisioningMode: "linear"}},
				Protocol:   v1alpha1.Protocol{NVMeOFTCP: &nvme},
				Filesystem: &v1alpha1.Filesystem{FSType: v1alpha1.FSTypeExt4},
			},
		},
		Status: v1alpha1.PillarVolumeStateStatus{
			Phase: v1alpha1.PhaseReady, CapacityBytes: 1 << 30, PublicationGeneration: 2,
			ExportInfo: &v1alpha1.ExportInfo{TargetID: nqn(id), Address: "127.0.0.1", Port: 4420, VolumeRef: nqn(id)},
			ExportSpec: &v1alpha1.ExportSpec{BindAddress: "127.0.0.1", Port: 4420, ACLEnabled: true},
		},
	}
	for kind, reason := range map[string]string{
		v1alpha1.BackendCreated: v1alpha1.ReasonCreated, v1alpha1.ExportCreated: v1alpha1.ReasonCreated, v1alpha1.Ready: v1alpha1.ReasonAllConditionsMet,
	} {
		meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason, ObservedGeneration: 1})
	}
	return v
}

func readyVolume(agent string, claim *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	name := claim.Spec.VolumeName
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": v1alpha1.DriverName}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: gibibyte, AccessModes: claim.Spec.AccessModes, StorageClassName: agent,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: v1alpha1.DriverName, VolumeHandle: agent + "/nvmeof-tcp/lvm-lv/" + Pool + "/" + name, FSType: v1alpha1.FSTypeExt4,
				VolumeAttributes: map[string]string{
					v1alpha1.KeyPrefix + "target-id": nqn(Pool + "/" + name), v1alpha1.KeyPrefix + "address": "127.0.0.1",
					v1alpha1.KeyPrefix + "port": "4420", "storage.kubernetes.io/csiProvisionerIdentity": "1764444444444-8081-" + v1alpha1.DriverName,
				},
			}},
		},
	}
}

// Steady waits until the controller is at rest and answers what the average of the next
// periods costs.
func (w *World) Steady(ctx context.Context, periods int) (Cost, error) {
	if err := sleep(ctx, Period); err != nil { // what Fill left to do
		return Cost{}, err
	}
	before, err := w.sample(ctx)
	if err != nil {
		return Cost{}, err
	}
	if err := sleep(ctx, time.Duration(periods)*Period); err != nil {
		return Cost{}, err
	}
	after, err := w.sample(ctx)
	if err != nil {
		return Cost{}, err
	}
	n := float64(periods)
	asked := after.asked.Since(before.asked)
	writes, reads := asked.Split()
	c := Cost{
		Writes: float64(writes) / n, Reads: float64(reads) / n, Asked: asked,
		AgentCalls: float64(after.calls-before.calls) / n, Controller: after.used,
	}
	c.Controller.CPU = (after.used.CPU - before.used.CPU) / time.Duration(periods)
	return c, nil
}

type sample struct {
	asked Requests
	calls int
	used  Usage
}

func (w *World) sample(ctx context.Context) (s sample, err error) {
	if s.asked, err = w.Requests(ctx); err != nil {
		return s, err
	}
	for _, a := range w.Agents {
		for _, n := range a.Calls() {
			s.calls += n
		}
	}
	s.used, err = w.Usage(Controller)
	return s, err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
