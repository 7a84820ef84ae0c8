package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// DeleteVolume commits that deletion has begun, has the agent remove export and backend,
// and removes the record last. Every retry uses the generation of the first attempt: once
// the backend is gone the agent accepts a repeated delete at exactly that one (block.md
// B-118). Only one that the agent calls superseded is given up (catchUp).
func (s *Server) DeleteVolume(ctx context.Context, req *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	v, found, err := s.find(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	if !found {
		csiserve.Unchanged(ctx)
		return &csi.DeleteVolumeResponse{}, nil
	}
	if err := s.remove(ctx, v, beginDelete); err != nil {
		return nil, s.answer(v.Spec.AgentRef, err)
	}
	return &csi.DeleteVolumeResponse{}, nil
}

// Reap ends the volume as DeleteVolume does, if its record is still exactly as v: a create
// that succeeded meanwhile must win (block.md B-141).
func (s *Server) Reap(ctx context.Context, v *v1alpha1.PillarVolumeState) error {
	err := s.remove(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if now.ResourceVersion != v.ResourceVersion {
			return false, fmt.Errorf("volume %s: %w", v.Name, ledger.ErrLost)
		}
		return beginDelete(now)
	})
	return s.answer(v.Spec.AgentRef, err)
}

// remove commits begin, ends the backend and forgets the record.
func (s *Server) remove(ctx context.Context, v *v1alpha1.PillarVolumeState, begin func(*v1alpha1.PillarVolumeState) (bool, error)) error {
	v, err := s.ledger.Update(ctx, v, begin)
	if err != nil {
		return err
	}
	if v.Status.Phase != "" { // without a phase no attempt was ever sent: nothing is there
		a, err := s.agent(ctx, v, csiserve.FailedPrecondition)
		if err != nil {
			return err
		}
		if err := a.destroy(ctx, v); err != nil {
			return s.catchUp(ctx, v, s.stopped(ctx, v, "DeleteVolume", err))
		}
	}
	return s.ledger.Remove(ctx, v)
}

// catchUp gives the next attempt to delete another generation if the agent refused this one as
// superseded, and answers why. Nothing newer can be committed while a volume is deleted, so
// the cluster's data is older than the agent's, as after a restore from a backup; and the
// lifecycle is alive there, an ended one is refused otherwise. Without this the delete would
// never finish (block.md N-51).
func (s *Server) catchUp(ctx context.Context, v *v1alpha1.PillarVolumeState, why error) error {
	rejected := (*fencing.Rejection)(nil)
	if !errors.As(why, &rejected) || rejected.Decision != fencing.RejectSuperseded {
		return why
	}
	_, err := s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if now.Status.PublicationGeneration != v.Status.PublicationGeneration {
			return false, nil // another controller did, or is ahead
		}
		ledger.Advance(now)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%w (and its record could not be written: %v)", why, err)
	}
	return why
}

// beginDelete excludes every later publish; it sees no publication in the same write.
func beginDelete(now *v1alpha1.PillarVolumeState) (bool, error) {
	switch nodes := published(now, ""); {
	case len(nodes) > 0:
		return false, csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("volume %s is published to %v; unpublish it first: delete the pods and wait for their VolumeAttachments (none left: see docs/operations.md)", now.Name, nodes))
	case ledger.Phase(now) == v1alpha1.PhaseRecoveryPending:
		return false, csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("volume %s waits for its recovery", now.Name))
	case adopted(now): // releasing is not destroying (block.md B-120)
		return false, notYet("releasing the adopted volume "+now.Name, "keep its record")
	case now.Status.Deleting:
		return false, nil
	}
	now.Status.Deleting = true
	ledger.Advance(now)
	return true, nil
}

// destroy takes export and backend away. A create whose answer was lost is covered: the
// backend is deleted whether or not it is known to exist (block.md B-122).
func (a *agent) destroy(ctx context.Context, v *v1alpha1.PillarVolumeState) error {
	tok := ledger.Token(v)
	if err := a.client.UnexportVolume(ctx, tok, a.backend, a.kind, a.volume); err != nil && !absent(err) {
		return a.failed("unexport volume", err)
	}
	if err := a.client.DeleteVolume(ctx, tok, a.backend, a.volume); err != nil && !absent(err) {
		return a.failed("delete volume", err)
	}
	return nil
}
