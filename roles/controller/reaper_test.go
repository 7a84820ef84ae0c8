package controller

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/reconcile"
)

// reaper answers one whose clock is ahead of ours.
func (b *bench) reaper(ahead time.Duration) (*reconcile.Reaper, *events.FakeRecorder) {
	told := events.NewFakeRecorder(10)
	return reconcile.NewReaper(b.api, b.api, told, func() time.Time { return time.Now().Add(ahead) }, b.Reap), told
}

const late = 11 * time.Minute

// abandoned starts a volume whose export fails, for a claim that is gone again.
func (b *bench) abandoned(name string) (*v1alpha1.PillarVolumeState, *corev1.PersistentVolumeClaim) {
	b.t.Helper()
	pvc := b.claim(name+"-"+b.name, nil)
	req := b.createRequest(name)
	forClaim(req, pvc.Name)
	b.failing("ExportVolume", errors.New("configfs is gone"))
	if _, err := b.CreateVolume(b.t.Context(), req); err == nil {
		b.t.Fatal("CreateVolume succeeded")
	}
	b.agent.set(func(a *fakeAgent) { a.fail = map[string]error{} })
	b.agent.take()
	pvc.Finalizers = nil
	if err := b.api.Update(b.t.Context(), pvc); err != nil {
		b.t.Fatal(err)
	}
	if err := b.api.Delete(b.t.Context(), pvc); err != nil {
		b.t.Fatal(err)
	}
	return b.state(req.Name), pvc
}

// TestReaper removes what was begun for a claim that is gone, and nothing else (B-141,
// N-21). A row changes one thing about such a volume.
func TestReaper(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	volume := func(handle, claim string) client.Object {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: b.name + "-" + claim}, Spec: corev1.PersistentVolumeSpec{
			Capacity:    corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			ClaimRef:    &corev1.ObjectReference{Namespace: "default", Name: claim},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: v1alpha1.DriverName, VolumeHandle: handle},
			},
		}}
	}
	tests := map[string]struct {
		change func(v *v1alpha1.PillarVolumeState, claim string)
		ahead  time.Duration
		want   reconcile.Outcome
	}{
		"abandoned":                      {func(*v1alpha1.PillarVolumeState, string) {}, late, reconcile.Reaped},
		"within its grace":               {func(*v1alpha1.PillarVolumeState, string) {}, time.Minute, ""},
		"its claim made anew, other UID": {func(_ *v1alpha1.PillarVolumeState, claim string) { b.claim(claim, nil) }, late, reconcile.Reaped},
		"a volume of another claim":      {func(v *v1alpha1.PillarVolumeState, _ string) { b.create(volume(v.Spec.VolumeID, "other")) }, late, reconcile.Kept},
		"Ready without a volume":         {func(v *v1alpha1.PillarVolumeState, _ string) { b.phase(v, v1alpha1.PhaseReady) }, late, ""},
		"waiting for recovery":           {func(v *v1alpha1.PillarVolumeState, _ string) { b.phase(v, v1alpha1.PhaseRecoveryPending) }, late, ""},
		"only begun":                     {func(v *v1alpha1.PillarVolumeState, _ string) { b.phase(v, v1alpha1.PhaseProvisioning) }, late, reconcile.Reaped},
		"without the annotation":         {func(v *v1alpha1.PillarVolumeState, _ string) { b.unsigned(v) }, late, ""},
		"marked for deletion by hand":    {func(v *v1alpha1.PillarVolumeState, _ string) { b.drop(v) }, late, reconcile.Reaped},
		"a delete that stopped half way": {func(v *v1alpha1.PillarVolumeState, _ string) { b.deleting(v) }, late, reconcile.Reaped},
	}
	n := 0
	for name, test := range tests {
		n++
		volume := "pvc-" + string(rune('a'+n))
		t.Run(name, func(t *testing.T) {
			b.t = t
			v, pvc := b.abandoned(volume)
			test.change(v, pvc.Name)
			r, told := b.reaper(test.ahead)
			got, err := r.Look(t.Context(), v.Name)
			if got != test.want || err != nil {
				t.Errorf("Look = %q, %v, want %q", got, err, test.want)
			}
			left := b.state(v.Name)
			if (left == nil) != (test.want == reconcile.Reaped) || len(told.Events) > 0 != (left == nil) {
				t.Errorf("record = %v after %d events, want it gone with one event %t", left, len(told.Events), test.want == reconcile.Reaped)
			}
		})
	}
}

func (b *bench) phase(v *v1alpha1.PillarVolumeState, p v1alpha1.Phase) {
	b.volume = strings.TrimPrefix(v.Name, b.name)
	b.edit(func(s *status) { s.Phase = p })
}

func (b *bench) deleting(v *v1alpha1.PillarVolumeState) {
	b.volume = strings.TrimPrefix(v.Name, b.name)
	b.edit(func(s *status) { s.Deleting = true; s.PublicationGeneration++ })
}

// unsigned takes the promise away that success is recorded before it is told.
func (b *bench) unsigned(v *v1alpha1.PillarVolumeState) {
	b.t.Helper()
	delete(v.Annotations, v1alpha1.SuccessRecordedAnnotation)
	if err := b.api.Update(b.t.Context(), v); err != nil {
		b.t.Fatal(err)
	}
}

// TestReaper_goesOn retries for ever while the agent is away, and never drops the record
// (B-142).
func TestReaper_goesOn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	v, _ := b.abandoned("pvc-w")
	r, _ := b.reaper(late)
	b.failing("DeleteVolume", agentrpc.ErrUnavailable)
	for range 3 {
		if got, err := r.Look(t.Context(), v.Name); got != reconcile.ReapFailed || !errors.Is(err, agentrpc.ErrUnavailable) {
			t.Errorf("Look = %q, %v, want an error", got, err)
		}
	}
	if b.state(v.Name) == nil {
		t.Fatal("the record was dropped")
	}
	b.agent.set(func(a *fakeAgent) { a.fail = map[string]error{} })
	if got, err := r.Look(t.Context(), v.Name); got != reconcile.Reaped || err != nil {
		t.Errorf("Look = %q, %v, want reaped", got, err)
	}
	wantCalls(t, b.agent, "UnexportVolume g3", "DeleteVolume g3", "UnexportVolume g3", "DeleteVolume g3",
		"UnexportVolume g3", "DeleteVolume g3", "UnexportVolume g3", "DeleteVolume g3")
	if volumes, exports, _ := b.agent.have(); len(volumes)+len(exports) > 0 {
		t.Errorf("left on the agent: %v %v", volumes, exports)
	}
}

// TestReaper_losesToCreate has a create succeed between the reaper's judgement and its
// write: what was reported must stay (N-20).
func TestReaper_losesToCreate(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	judged, _ := b.abandoned("pvc-s")
	if _, err := b.CreateVolume(t.Context(), b.createRequest("pvc-s")); err != nil {
		t.Fatal(err)
	}
	b.agent.take()
	if err := b.Reap(t.Context(), judged); err == nil {
		t.Error("Reap of a record that went on succeeded")
	}
	if v := b.state(judged.Name); v == nil || v.Status.Deleting {
		t.Errorf("record = %+v, want it Ready", v)
	}
	wantCalls(t, b.agent)
}

// TestReaper_claimByUID finds the claim by what the volume's name says, if nothing else
// does, and keeps what it cannot tell.
func TestReaper_claimByUID(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	pvc := b.claim("uid-"+b.name, nil)
	tests := map[string]struct {
		name string
		want reconcile.Outcome
	}{
		"its claim is there": {"pvc-" + string(pvc.UID), reconcile.Kept},
		"its claim is gone":  {"pvc-" + uuid.NewString(), reconcile.Reaped},
		"no UID in the name": {"pvc-db-" + b.name, reconcile.Kept},
		"nobody knows":       {b.name + "-by-hand", reconcile.Kept},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b.create(&v1alpha1.PillarVolumeState{
				ObjectMeta: metav1.ObjectMeta{Name: test.name, Annotations: map[string]string{v1alpha1.SuccessRecordedAnnotation: "true"}},
				Spec: v1alpha1.PillarVolumeStateSpec{
					VolumeID: b.name + "/nvmeof-tcp/lvm-lv/vg0/" + test.name, AgentVolumeID: "vg0/" + test.name,
					AgentRef: b.name, BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp",
				},
			})
			r, _ := b.reaper(late)
			if got, err := r.Look(t.Context(), test.name); got != test.want || err != nil {
				t.Errorf("Look = %q, %v, want %q", got, err, test.want)
			}
		})
	}
}
