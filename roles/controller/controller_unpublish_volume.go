package controller

import (
	"context"
	"errors"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// ControllerUnpublishVolume marks a node's publication revoking, has the agent take the
// initiator away, and then forgets the publication. An empty node means every node
// (block.md B-105 to B-111).
func (s *Server) ControllerUnpublishVolume(ctx context.Context, req *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	v, found, err := s.find(ctx, req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	var nodes []string
	if found {
		nodes = published(v, req.GetNodeId())
	}
	if len(nodes) == 0 {
		csiserve.Unchanged(ctx)
	}
	var errs []error // one stuck node keeps no other one
	for _, node := range nodes {
		if err := s.unpublish(ctx, v, node); err != nil {
			errs = append(errs, s.answer(v.Spec.AgentRef, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// published are the nodes with a record, all or the one asked for.
func published(v *v1alpha1.PillarVolumeState, node string) []string {
	var nodes []string
	for _, p := range v.Status.PublishedNodes {
		if node == "" || p.NodeID == node {
			nodes = append(nodes, p.NodeID)
		}
	}
	return nodes
}

const unpublishing = "ControllerUnpublishVolume"

// unpublish ends one node's publication. The record keeps blocking others until the agent
// confirmed the revoke; a missing agent object confirms nothing (block.md B-107).
func (s *Server) unpublish(ctx context.Context, v *v1alpha1.PillarVolumeState, node string) error {
	var record v1alpha1.PublishedNode
	v, err := s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		record = v1alpha1.PublishedNode{}
		i := recordOf(now, node)
		if i < 0 {
			return false, nil
		}
		now.Status.PublishedNodes[i].Revoking = true
		record = now.Status.PublishedNodes[i]
		ledger.Advance(now)
		return true, nil
	})
	if err != nil || record.NodeID == "" {
		return err
	}
	a, err := s.agent(ctx, v, csiserve.FailedPrecondition)
	if err != nil {
		return err
	}
	if err := a.deny(ctx, v, record); err != nil {
		return s.stopped(ctx, v, unpublishing, err)
	}
	attempt := v.Status.PublicationGeneration
	_, err = s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if err := sameAttempt(now, attempt); err != nil {
			return false, err // a publication of that node may be a later one, granted again
		}
		now.Status.PublishedNodes = slices.DeleteFunc(now.Status.PublishedNodes, func(p v1alpha1.PublishedNode) bool { return p.NodeID == node })
		stuck := slices.ContainsFunc(now.Status.PublishedNodes, func(p v1alpha1.PublishedNode) bool { return p.Revoking })
		if c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.Ready); !stuck && c != nil && c.Reason == unpublishing+"Failed" {
			condition(now, v1alpha1.Ready, v1alpha1.ReasonAllConditionsMet, "backend and export exist")
		}
		ledger.Advance(now)
		return true, nil
	})
	return err
}

// deny has the agent revoke the recorded initiator: the node's CSINode may be gone by
// now. A local publication granted nothing.
func (a *agent) deny(ctx context.Context, v *v1alpha1.PillarVolumeState, record v1alpha1.PublishedNode) error {
	if record.Local {
		return nil
	}
	err := a.client.DenyInitiator(ctx, ledger.Token(v), a.backend, a.kind, a.volume, record.InitiatorID)
	if err != nil && !absent(err) {
		return a.failed("deny node "+record.NodeID+" on volume", err)
	}
	return nil
}

func recordOf(v *v1alpha1.PillarVolumeState, node string) int {
	return slices.IndexFunc(v.Status.PublishedNodes, func(p v1alpha1.PublishedNode) bool { return p.NodeID == node })
}

// absent tells whether the agent said that there is no such object (block.md B-109, B-121).
func absent(err error) bool {
	return errors.Is(err, storage.ErrNotFound) || errors.Is(err, transport.ErrNotFound)
}
