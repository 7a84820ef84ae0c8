package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// noteWait is how long a failure may take to be written down after its call has ended: the
// caller waits for the answer, and the note is for people.
const noteWait = 5 * time.Second

// longest is how much of an agent's words a record keeps, in bytes.
const longest = 1024

// stopped writes into the record where its creation stopped and why, for whoever looks at
// it, and answers why. The write takes no generation, since it changes nothing the agent is
// asked for (block.md B-53), and is left out while the same failure repeats.
func (s *Server) stopped(ctx context.Context, v *v1alpha1.PillarVolumeState, operation string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
	defer cancel()
	attempt := v.Status.PublicationGeneration
	_, err := s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if sameAttempt(now, attempt) != nil || ledger.Phase(now) != ledger.Phase(v) {
			return false, nil // the record is about something newer
		}
		return note(now, operation, csiserve.CodeOf(why).String(), why.Error()), nil
	})
	if err != nil {
		return fmt.Errorf("%w (and its record could not be written: %v)", why, err)
	}
	return why
}

// unended writes into the record why an operation that ends something failed, and answers
// why. Such a record looks healthy otherwise: its phase stays. Like stopped it takes no
// generation and does not repeat itself.
func (s *Server) unended(ctx context.Context, v *v1alpha1.PillarVolumeState, operation string, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteWait)
	defer cancel()
	_, err := s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if now.Status.PublicationGeneration != v.Status.PublicationGeneration {
			return false, nil // another operation went on
		}
		return unready(now, operation, clip(why.Error())), nil
	})
	if err != nil {
		return fmt.Errorf("%w (and its record could not be written: %v)", why, err)
	}
	return why
}

// unready sets Ready=False and tells whether that is news.
func unready(v *v1alpha1.PillarVolumeState, operation, message string) bool {
	return meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: v1alpha1.Ready, Status: metav1.ConditionFalse, Reason: operation + "Failed", Message: message, ObservedGeneration: v.Generation,
	})
}

func clip(message string) string {
	if len(message) <= longest {
		return message
	}
	return strings.ToValidUTF8(message[:longest], "") + " ..."
}

// note tells whether it changed the record.
func note(v *v1alpha1.PillarVolumeState, operation, reason, message string) bool {
	message = clip(message)
	old := v.Status.PartialFailure
	if old != nil && old.FailedOperation == operation && old.Reason == reason && old.Message == message {
		return false
	}
	v.Status.PartialFailure = &v1alpha1.PartialFailure{
		FailedOperation: operation, FailedAt: metav1.NewTime(time.Now()), Reason: reason, Message: message,
		BackendCreated: ledger.Phase(v) == v1alpha1.PhaseCreatePartial,
	}
	unready(v, operation, message)
	return true
}
