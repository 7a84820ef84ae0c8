package reconcile

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

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
