package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/telemetry"
)

// Pacing of the reaper. The grace counts from a record's last change (block.md U-11).
const (
	reapPeriod = time.Minute
	reapGrace  = 10 * time.Minute
)

// Outcome is what became of a record the reaper looked at.
type Outcome string

// The outcomes; a record that is none of the reaper's business has none.
const (
	Reaped     Outcome = "reaped"
	Kept       Outcome = "kept"  // somebody still wants it, or may
	ReapFailed Outcome = "error" // not known, or not removed; tried again
)

// Reaper removes volumes whose creation was given up: the claim went away before
// CreateVolume reported success, so that nobody will ever call DeleteVolume (block.md
// B-141). It runs on the leader. A cache names the candidates; every decision is taken from
// the API server itself (B-139), and remove must refuse a record that changed since.
type Reaper struct {
	cached, direct client.Reader
	events         events.EventRecorder
	remove         func(ctx context.Context, v *v1alpha1.PillarVolumeState) error
	now            func() time.Time
	count          *prometheus.CounterVec // by agent and outcome
}

// NewReaper answers a reaper with a clock of its own.
func NewReaper(cached, direct client.Reader, recorder events.EventRecorder, now func() time.Time,
	remove func(ctx context.Context, v *v1alpha1.PillarVolumeState) error,
) *Reaper {
	count := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "pillar_csi_volumes_reaped_total",
		Help: "Records of abandoned provisioning that were looked at after their grace, by outcome.",
	}, []string{"agent", "result"})
	var there prometheus.AlreadyRegisteredError
	if err := metrics.Registry.Register(count); errors.As(err, &there) { // another manager of this process
		count = there.ExistingCollector.(*prometheus.CounterVec)
	}
	return &Reaper{cached, direct, recorder, remove, now, count}
}

// SetupReaper adds a reaper to the manager.
func SetupReaper(mgr ctrl.Manager, direct client.Client, remove func(ctx context.Context, v *v1alpha1.PillarVolumeState) error) error {
	return mgr.Add(NewReaper(mgr.GetClient(), direct, mgr.GetEventRecorder("pillar-csi"), time.Now, remove))
}

// NeedLeaderElection makes the manager run it on the leader alone.
func (r *Reaper) NeedLeaderElection() bool { return true }

// Start looks at every candidate each period until ctx ends.
func (r *Reaper) Start(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reapPeriod):
		}
		if err := r.pass(ctx); err != nil {
			log.FromContext(ctx).Error(err, "look for abandoned volumes")
		}
	}
}

// pass looks at the candidates of each agent one after the other: an agent that hangs
// holds up none but its own.
func (r *Reaper) pass(ctx context.Context) error {
	list := &v1alpha1.PillarVolumeStateList{}
	if err := r.cached.List(ctx, list); err != nil {
		return fmt.Errorf("list volume states: %w", err)
	}
	byAgent := map[string][]string{}
	for i := range list.Items {
		if v := &list.Items[i]; r.candidate(v) {
			byAgent[v.Spec.AgentRef] = append(byAgent[v.Spec.AgentRef], v.Name)
		}
	}
	var group errgroup.Group
	for _, names := range byAgent {
		group.Go(func() error {
			for _, name := range names {
				if _, err := r.Look(ctx, name); err != nil {
					log.FromContext(ctx).Error(err, "abandoned volume", telemetry.KeyPVName, name)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// Look removes the record of that name with everything it stands for, if it is abandoned.
// The error goes with ReapFailed; the agent may be away for as long as it likes (B-142).
func (r *Reaper) Look(ctx context.Context, name string) (Outcome, error) {
	v := &v1alpha1.PillarVolumeState{}
	err := r.direct.Get(ctx, types.NamespacedName{Name: name}, v)
	if apierrors.IsNotFound(err) || err == nil && !r.candidate(v) {
		return "", nil
	}
	if err != nil {
		return ReapFailed, fmt.Errorf("read volume state %s: %w", name, err)
	}
	outcome, err := r.reap(ctx, v)
	r.count.WithLabelValues(v.Spec.AgentRef, string(outcome)).Inc()
	if err != nil {
		return outcome, fmt.Errorf("reap volume %s: %w", name, err)
	}
	return outcome, nil
}

func (r *Reaper) reap(ctx context.Context, v *v1alpha1.PillarVolumeState) (Outcome, error) {
	for _, wanted := range []func(context.Context, *v1alpha1.PillarVolumeState) (bool, error){r.claimed, r.bound} {
		if is, err := wanted(ctx, v); err != nil {
			return ReapFailed, err
		} else if is {
			return Kept, nil
		}
	}
	if err := r.remove(ctx, v); err != nil {
		return ReapFailed, err
	}
	note := "claim " + claimOf(v).UID + " is gone and no PersistentVolume was made; what was left on agent " + v.Spec.AgentRef + " is removed"
	r.events.Eventf(v, nil, corev1.EventTypeNormal, "VolumeReaped", "Reap", "%s", note)
	log.FromContext(ctx).Info("volume reaped", telemetry.KeyPVName, v.Name, "agent", v.Spec.AgentRef)
	return Reaped, nil
}

// candidate tells whether the record could be abandoned: CreateVolume never reported
// success, which is certain only for records that say so (block.md B-56), and nothing
// happened for the grace. One that is being deleted stays a candidate: an earlier reap
// may have stopped half way, and nobody else goes on with it.
func (r *Reaper) candidate(v *v1alpha1.PillarVolumeState) bool {
	switch ledger.Phase(v) {
	case v1alpha1.PhaseProvisioning, v1alpha1.PhaseCreatePartial:
		return v.Annotations[v1alpha1.SuccessRecordedAnnotation] == "true" && len(v.Status.PublishedNodes) == 0 &&
			r.now().Sub(lastChange(v)) >= reapGrace
	}
	return false
}

// lastChange is when anybody last wrote the record; a cache may not keep that, and then
// answers when it was made.
func lastChange(v *v1alpha1.PillarVolumeState) time.Time {
	last := v.CreationTimestamp.Time
	for _, f := range v.ManagedFields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
}

// claimOf is the claim the record was made for, from the default volume name if nothing
// else tells; its UID is empty if it is not known.
func claimOf(v *v1alpha1.PillarVolumeState) v1alpha1.ClaimRef {
	if v.Spec.ClaimRef != nil {
		return *v.Spec.ClaimRef
	}
	return v1alpha1.ClaimRef{UID: ledger.ClaimUID(v.Name)}
}

// claimed tells whether the claim with exactly that UID exists, or may exist.
func (r *Reaper) claimed(ctx context.Context, v *v1alpha1.PillarVolumeState) (bool, error) {
	claim := claimOf(v)
	switch {
	case uuid.Validate(claim.UID) != nil: // no claim has such a UID, so nobody can tell
		return true, nil
	case claim.Name != "" && claim.Namespace != "":
		pvc := &corev1.PersistentVolumeClaim{}
		err := r.direct.Get(ctx, types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}, pvc)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
		return string(pvc.UID) == claim.UID, nil
	}
	found, err := anyOf(ctx, r.direct, func() client.ObjectList {
		claims := &metav1.PartialObjectMetadataList{}
		claims.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
		return claims
	}, func(c *metav1.PartialObjectMetadata) bool { return string(c.UID) == claim.UID })
	if err != nil {
		return false, fmt.Errorf("list claims: %w", err)
	}
	return found, nil
}

// bound tells whether a PersistentVolume has the volume, under whatever name.
func (r *Reaper) bound(ctx context.Context, v *v1alpha1.PillarVolumeState) (bool, error) {
	found, err := anyOf(ctx, r.direct, func() client.ObjectList { return &corev1.PersistentVolumeList{} },
		func(pv *corev1.PersistentVolume) bool {
			return pv.Name == v.Name || pv.Spec.CSI != nil && pv.Spec.CSI.VolumeHandle == v.Spec.VolumeID
		})
	if err != nil {
		return false, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	return found, nil
}

// anyOf tells whether the API server has an object that is wanted; it reads them page by
// page, since thousands at once would be what the controller's memory peaks at.
func anyOf[T any](ctx context.Context, api client.Reader, newList func() client.ObjectList, wanted func(*T) bool) (bool, error) {
	const page = 500
	for next := ""; ; {
		list, found := newList(), false
		if err := api.List(ctx, list, client.Limit(page), client.Continue(next)); err != nil {
			return false, err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			item, ok := o.(any).(*T)
			found = found || ok && wanted(item)
			return nil
		})
		if next = list.GetContinue(); err != nil || found || next == "" {
			return found, err
		}
	}
}
