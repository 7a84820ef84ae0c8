package agentrpc

import (
	"context"
	"time"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// ExportVolume makes the volume reachable, or answers the equal export that is there.
func (c *Client) ExportVolume(ctx context.Context, tok fencing.Token, backend storage.BackendType, e transport.Export) (transport.Target, error) {
	r, err := call(ctx, callDeadline, c.agent.ExportVolume, &agentpb.ExportVolumeRequest{
		Token: fromToken(tok), VolumeId: e.Volume, Export: fromExport(backend, e),
	})
	if err != nil {
		return transport.Target{}, err
	}
	return toTarget(r.Export)
}

// UnexportVolume takes the volume's export away; an absent one is success.
func (c *Client) UnexportVolume(ctx context.Context, tok fencing.Token, backend storage.BackendType, kind transport.Kind, id storage.VolumeID) error {
	_, err := call(ctx, callDeadline, c.agent.UnexportVolume, &agentpb.UnexportVolumeRequest{
		Token: fromToken(tok), VolumeId: id.String(), Backend: string(backend), Protocol: string(kind),
	})
	return err
}

// AllowInitiator admits one initiator to the export. Without an export it is
// transport.ErrNotFound; with acl off it only advances the mark.
func (c *Client) AllowInitiator(ctx context.Context, tok fencing.Token, backend storage.BackendType, kind transport.Kind, id storage.VolumeID, initiator string, acl bool) error {
	_, err := call(ctx, callDeadline, c.agent.AllowInitiator, &agentpb.AllowInitiatorRequest{
		Token: fromToken(tok), VolumeId: id.String(), Backend: string(backend), Protocol: string(kind),
		InitiatorId: initiator, AclEnabled: acl,
	})
	return err
}

// DenyInitiator takes one initiator's admission and its sessions away; an absent one is
// success.
func (c *Client) DenyInitiator(ctx context.Context, tok fencing.Token, backend storage.BackendType, kind transport.Kind, id storage.VolumeID, initiator string) error {
	_, err := call(ctx, callDeadline, c.agent.DenyInitiator, &agentpb.DenyInitiatorRequest{
		Token: fromToken(tok), VolumeId: id.String(), Backend: string(backend), Protocol: string(kind),
		InitiatorId: initiator,
	})
	return err
}

// Item is the desired export of one volume with the authority to set it; both come from
// one read of the record (block.md B-53).
type Item struct {
	Token   fencing.Token
	Backend storage.BackendType
	Export  transport.Export
	Ready   bool // phase Ready; others are restored after these
}

// ItemResult is what became of an item; its error has a kind.
type ItemResult struct {
	Volume string // agent volume ID
	Err    error
}

// Reconcile brings exports to their desired state. Complete says that items is every
// export this agent is to keep; it opens the gate. An error means that the request as a
// whole was not processed; results are one per item, in any order.
func (c *Client) Reconcile(ctx context.Context, complete bool, items []Item) ([]ItemResult, error) {
	req := &agentpb.ReconcileStateRequest{Complete: complete}
	for _, i := range items {
		req.Items = append(req.Items, &agentpb.ReconcileItem{
			Token: fromToken(i.Token), VolumeId: i.Export.Volume, Export: fromExport(i.Backend, i.Export), Ready: i.Ready,
		})
	}
	limit := callDeadline + time.Duration(len(items))*itemDeadline
	r, err := call(ctx, limit, c.agent.ReconcileState, req)
	if err != nil {
		return nil, err
	}
	var results []ItemResult
	for _, res := range r.Results {
		results = append(results, ItemResult{Volume: res.VolumeId, Err: fromResult(res)})
	}
	return results, nil
}
