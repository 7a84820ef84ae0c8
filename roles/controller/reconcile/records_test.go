package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/zapr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

// TestExports_logged: a volume that an agent could not export is one line in the log, with
// the agent's words, and no other one while they stay the same. One that waits for another is
// not its own trouble.
func TestExports_logged(t *testing.T) {
	b := newBench(t)
	r := newExports(b.kube, func(string) {})
	core, logs := observer.New(zap.InfoLevel)
	ctx := log.IntoContext(t.Context(), zapr.NewLogger(zap.New(core)))
	answers := []agentrpc.ItemResult{
		{Volume: "vg0/broken", Err: errors.New("device missing")},
		{Volume: "vg0/fine"},
		{Volume: "vg0/old", Err: fencing.ErrStale},
		{Volume: "vg0/waits", Err: agentrpc.ErrUnavailable},
	}
	for _, a := range answers {
		name := strings.TrimPrefix(a.Volume, "vg0/")
		b.create(&v1alpha1.PillarVolumeState{
			ObjectMeta: metav1.ObjectMeta{Name: b.name + name},
			Spec:       v1alpha1.PillarVolumeStateSpec{VolumeID: name, AgentVolumeID: a.Volume, AgentRef: b.name, BackendType: "lvm-lv", ProtocolType: "nvmeof-tcp"},
			Status:     v1alpha1.PillarVolumeStateStatus{Phase: v1alpha1.PhaseReady, ExportSpec: &v1alpha1.ExportSpec{BindAddress: "10.0.0.5", Port: 4420}},
		})
	}
	for range 3 {
		volumes, err := r.ledger.Of(ctx, b.name)
		if err != nil {
			t.Fatal(err)
		}
		w := r.desired(ctx, volumes)
		w.results(answers)
		r.backlog(b.name).settled(time.Now(), w.outcomes)
		r.write(ctx, b.name)
	}
	var got []map[string]any
	for _, line := range logs.All() {
		fields := line.ContextMap()
		fields["msg"] = line.Message
		got = append(got, fields)
	}
	line := func(volume, reason, why string) map[string]any {
		return map[string]any{"msg": "export not reconciled", "error": why, "reason": reason, "pillar_csi.pv.name": b.name + volume, "agent": b.name}
	}
	want := []map[string]any{line("broken", "ReconcileFailed", "device missing"), line("old", "StaleGeneration", fencing.ErrStale.Error())}
	byName := cmpopts.SortSlices(func(x, y map[string]any) bool { return fmt.Sprint(x) < fmt.Sprint(y) })
	if diff := cmp.Diff(want, got, byName); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if heard := b.heard(); len(heard) != len(want) {
		t.Errorf("told %q, want one event for each line", heard)
	}
}

// TestExports_deletedByHand: a record that somebody deleted lives on and looks healthy, so an
// event says what happened, once, and not where DeleteVolume did it.
func TestExports_deletedByHand(t *testing.T) {
	now := metav1.Now()
	live := &v1alpha1.PillarVolumeState{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}}
	byHand := live.DeepCopy()
	byHand.DeletionTimestamp = &now
	ended := byHand.DeepCopy()
	ended.Status.Deleting = true
	tests := map[string]struct {
		before, now *v1alpha1.PillarVolumeState
		want        string
	}{
		"by hand":         {live, byHand, "Warning DeletedByHand somebody deleted this record"},
		"changed later":   {byHand, byHand, ""},
		"by DeleteVolume": {live, ended, ""},
		"not deleted":     {live, live, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			told := events.NewFakeRecorder(1)
			r := &exports{kube: kube{events: told}}
			r.changed(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.now}, nil)
			got := ""
			select {
			case got = <-told.Events:
			default:
			}
			if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("told %q, want %q", got, tc.want)
			}
		})
	}
}
