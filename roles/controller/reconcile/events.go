package reconcile

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// Reasons of events that are no condition's.
const (
	eventUpdated       = "StorageClassUpdated"
	eventDriftReverted = "StorageClassDriftReverted"
	eventRecreated     = "StorageClassRecreated"
	eventDuplicate     = "DuplicateInitiator"
	eventByHand        = "DeletedByHand"
	eventMoved         = "AddressChanged"
)

// tell makes an event about obj. action says what was done or looked at.
func (k kube) tell(obj client.Object, kind, reason, action, note string) {
	const limit = 1024 // bytes the API server takes
	k.events.Eventf(obj, nil, kind, reason, action, "%s", settings.Clip(note, limit))
}

// changes are the conditions that are worth an event: those with a new status or reason.
// Unknown follows from another condition, and so does a Ready that turned False for the
// same cause; the cause alone is told, once however many conditions it turned.
func (s status) changes() []metav1.Condition {
	var changed []metav1.Condition
	failed := false
	for _, c := range *s.conditions {
		old := meta.FindStatusCondition(s.before, c.Type)
		same := func(o metav1.Condition) bool { return o.Status == c.Status && o.Reason == c.Reason }
		if c.Status == metav1.ConditionUnknown || old != nil && same(*old) ||
			slices.ContainsFunc(changed, func(o metav1.Condition) bool { return same(o) && o.Message == c.Message }) {
			continue
		}
		changed = append(changed, c)
		failed = failed || c.Status == metav1.ConditionFalse && c.Type != v1alpha1.Ready
	}
	if !failed {
		return changed
	}
	var causes []metav1.Condition
	for _, c := range changed {
		if c.Type != v1alpha1.Ready || c.Reason == v1alpha1.ReasonDeletionBlocked {
			causes = append(causes, c)
		}
	}
	return causes
}

func eventType(c metav1.Condition) string {
	if c.Status == metav1.ConditionTrue {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}
