package controller

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// noteWait is how long a failure may take to be written down after its call has ended: the
// caller waits for the answer, and the note is for people.
const noteWait = 5 * time.Second

// longest is how much of an agent's words a record keeps, in bytes.
const longest = 1024

// stopped writes into the record why an operation that makes or ends something goes no
// further, for whoever looks at it, and answers why. The write takes no generation, since it
// changes nothing the agent is asked for (block.md B-53), and is left out while the same
// failure repeats.
func (s *Server) stopped(ctx context.Context, v *v1alpha1.PillarVolumeState, operation string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
	defer cancel()
	_, err := s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if now.Status.PublicationGeneration != v.Status.PublicationGeneration || ledger.Phase(now) != ledger.Phase(v) {
			return false, nil // the record is about something newer
		}
		return note(now, operation, csiserve.CodeOf(why).String(), why.Error()), nil
	})
	if err != nil {
		return fmt.Errorf("%w (and its record could not be written: %v)", why, err)
	}
	return why
}

// note sets Ready=False, and partialFailure in the phases that have one, and tells whether
// that is news. One of a volume that ends stays: it says how far its creation came.
func note(v *v1alpha1.PillarVolumeState, operation, reason, message string) bool {
	message = settings.Clip(message, longest)
	news := meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: operation + "Failed", Message: message, ObservedGeneration: v.Generation,
	})
	phase, old := ledger.Phase(v), v.Status.PartialFailure
	if phase == v1alpha1.PhaseReady || v.Status.Deleting ||
		old != nil && old.FailedOperation == operation && old.Reason == reason && old.Message == message {
		return news
	}
	v.Status.PartialFailure = &v1alpha1.PartialFailure{
		FailedOperation: operation, FailedAt: metav1.NewTime(time.Now()), Reason: reason, Message: message,
		BackendCreated: phase == v1alpha1.PhaseCreatePartial,
	}
	return true
}
