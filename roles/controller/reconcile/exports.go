package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
)

// exports sends the agent what it is to serve: everything in one complete request while
// its gate is closed, the same as a check every 30 s while it is open.
func (r *Agents) exports(ctx context.Context, pa *v1alpha1.PillarAgent, s status, client *agentrpc.Client, health agentrpc.Health) {
	if !health.Gated {
		s.yes(v1alpha1.ExportsReady, v1alpha1.ReasonExportsServing, "")
		if r.due(pa.Name) {
			if err := r.send(ctx, pa.Name, client, false); err != nil {
				log.FromContext(ctx).Error(err, "resync failed", "agent", pa.Name)
			}
		}
		return
	}
	failed := r.send(ctx, pa.Name, client, true)
	after, err := client.Health(ctx)
	switch {
	case err != nil:
		s.unknown(v1alpha1.ExportsReady, v1alpha1.ReasonAgentNotConnected, err.Error())
	case !after.Gated: // also after its hold time, without the exports that failed (B-275)
		s.yes(v1alpha1.ExportsReady, v1alpha1.ReasonExportsServing, "")
	case failed != nil:
		s.no(v1alpha1.ExportsReady, v1alpha1.ReasonExportRestoreFailed, failed.Error())
	default:
		s.no(v1alpha1.ExportsReady, v1alpha1.ReasonExportRestorePending, "the agent has not applied the complete export list yet")
	}
}

// due tells whether the agent's exports were not sent for a whole period.
func (r *Agents) due(agent string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.sent[agent]) >= poll
}

// mark notes when the agent's exports were sent; the zero time makes them due.
func (r *Agents) mark(agent string, sent time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent[agent] = sent
}

// send reads every record of the agent from the API server, which for a complete request
// happens after its gate was seen closed (block.md B-273), and sends the exports to keep.
// The error is that of the whole request, or of a volume that keeps the gate closed.
func (r *Agents) send(ctx context.Context, agent string, client *agentrpc.Client, complete bool) error {
	r.mark(agent, time.Now())
	volumes, items, err := r.desired(ctx, agent)
	if err != nil || !complete && len(items) == 0 {
		return err
	}
	results, err := client.Reconcile(ctx, complete, items)
	if err != nil {
		for _, v := range volumes {
			r.report(ctx, v, reasonOf(err), err.Error())
		}
		return fmt.Errorf("send exports of %s: %w", agent, err)
	}
	return r.results(ctx, volumes, results)
}

// unreachable reports every export of an agent that cannot be asked, and has them sent as
// soon as it can.
func (r *Agents) unreachable(ctx context.Context, agent string) {
	r.mark(agent, time.Time{})
	volumes, _, err := r.desired(ctx, agent)
	if err != nil {
		log.FromContext(ctx).Error(err, "exports of an unreachable agent", "agent", agent)
	}
	for _, v := range volumes {
		r.report(ctx, v, v1alpha1.ReasonAgentUnavailable, "agent "+agent+" is not connected")
	}
}

// desired reads every record of the agent from the API server and answers those with an
// export to keep, by agent volume ID, and the exports.
func (r *Agents) desired(ctx context.Context, agent string) (map[string]*v1alpha1.PillarVolumeState, []agentrpc.Item, error) {
	all, err := r.ledger.All(ctx)
	if err != nil {
		return nil, nil, err
	}
	volumes := map[string]*v1alpha1.PillarVolumeState{}
	var items []agentrpc.Item
	for i := range all {
		v := &all[i]
		if v.Spec.AgentRef != agent || !ledger.HasExport(v) {
			continue
		}
		item, ok := ledger.Desired(v)
		if !ok {
			r.report(ctx, v, v1alpha1.ReasonExportSpecMissing, "the record has no exportSpec; nothing is sent")
			continue
		}
		volumes[v.Spec.AgentVolumeID] = v
		items = append(items, item)
	}
	return volumes, items, nil
}

// results reports each volume's outcome and joins the failures. A rejected token delays
// nothing: the record moved on and the next pass reads it (block.md B-275).
func (r *Agents) results(ctx context.Context, volumes map[string]*v1alpha1.PillarVolumeState, results []agentrpc.ItemResult) error {
	var errs []error
	for _, res := range results {
		v := volumes[res.Volume]
		switch {
		case v == nil:
			errs = append(errs, fmt.Errorf("agent answered for volume %s, which was not sent", res.Volume))
		case res.Err == nil:
			r.report(ctx, v, v1alpha1.ReasonReconciled, "")
		default:
			r.report(ctx, v, reasonOf(res.Err), res.Err.Error())
			if !errors.Is(res.Err, fencing.ErrStale) {
				errs = append(errs, fmt.Errorf("volume %s: %w", v.Name, res.Err))
			}
		}
	}
	return errors.Join(errs...)
}

func reasonOf(err error) string {
	switch {
	case errors.Is(err, fencing.ErrStale):
		return v1alpha1.ReasonStaleGeneration
	case errors.Is(err, agentrpc.ErrUnavailable):
		return v1alpha1.ReasonAgentUnavailable
	}
	return v1alpha1.ReasonReconcileFailed
}

// report sets ExportReconciled where it differs from what v shows. A record that changed
// meanwhile is left to the next pass.
func (r *Agents) report(ctx context.Context, v *v1alpha1.PillarVolumeState, reason, message string) {
	want := metav1.Condition{
		Type: v1alpha1.ExportReconciled, Status: metav1.ConditionFalse, Reason: reason, Message: clip(message), ObservedGeneration: v.Generation,
	}
	if reason == v1alpha1.ReasonReconciled {
		want.Status = metav1.ConditionTrue
	}
	if !meta.SetStatusCondition(&v.DeepCopy().Status.Conditions, want) {
		return
	}
	_, err := r.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		return meta.SetStatusCondition(&now.Status.Conditions, want), nil
	})
	if err != nil && !errors.Is(err, ledger.ErrLost) {
		log.FromContext(ctx).Error(err, "record export condition", "volume", v.Name)
	}
}
