// Package ledger is the durable memory of volumes: one PillarVolumeState each.
//
//	spec     written once, by Create
//	status   moved only by Update: read from the API server, decided, written with the
//	         resourceVersion just read and the UID the operation started with
//
// A lost race is decided again from a fresh read. A vanished object or another UID ends
// the operation: an operation of a dead lifecycle never acquires a token of the new one
// (block.md B-51). Nothing here reads a cache, because a stale read could grant two nodes
// the same disk (B-139).
package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/storage"
)

// ErrLost means that the operation may not go on: its lifecycle ended or changed, another
// operation took over, or every compare-and-swap lost. The caller answers ABORTED.
var ErrLost = errors.New("volume changed under this operation")

// attempts bounds the compare-and-swap (block.md U-4); the pause between two is random
// up to pause, so that two controllers do not meet again.
const (
	attempts = 5
	pause    = 100 * time.Millisecond
)

// Ledger reads and moves PillarVolumeStates.
type Ledger struct {
	api client.Client
}

// New answers a ledger on a client that reads the API server itself.
func New(api client.Client) *Ledger { return &Ledger{api: api} }

// Read answers the record as the API server has it now, or storage.ErrNotFound if the
// server says there is none. A record marked for deletion still exists (block.md B-50).
func (l *Ledger) Read(ctx context.Context, name string) (*v1alpha1.PillarVolumeState, error) {
	v := &v1alpha1.PillarVolumeState{}
	err := l.api.Get(ctx, types.NamespacedName{Name: name}, v)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("volume %s: %w", name, storage.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read volume state %s: %w", name, err)
	}
	return v, nil
}

// page bounds one answer of the API server, in records.
const page = 500

// Find answers a record that is wanted, or nil if the API server has none. It looks at all
// that options select, page by page.
func (l *Ledger) Find(ctx context.Context, wanted func(v *v1alpha1.PillarVolumeState) bool, options ...client.ListOption) (*v1alpha1.PillarVolumeState, error) {
	for next := ""; ; {
		list := &v1alpha1.PillarVolumeStateList{}
		if err := l.api.List(ctx, list, append(options, client.Limit(page), client.Continue(next))...); err != nil {
			return nil, fmt.Errorf("list volume states: %w", err)
		}
		for i := range list.Items {
			if wanted(&list.Items[i]) {
				return &list.Items[i], nil
			}
		}
		if next = list.Continue; next == "" {
			return nil, nil
		}
	}
}

// ByID answers the record of a CSI volume ID, or nil if the API server has none. It reads
// the few records whose label is the ID's hash or missing: somebody may have removed it.
// The server picks them, so that a call for a volume that is gone, of which there are
// nearly as many as volumes when many are deleted at once, does not read all others.
func (l *Ledger) ByID(ctx context.Context, volumeID string) (*v1alpha1.PillarVolumeState, error) {
	for _, selector := range []string{v1alpha1.VolumeHashLabel + "=" + hash(volumeID), "!" + v1alpha1.VolumeHashLabel} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			return nil, fmt.Errorf("select volume states: %w", err)
		}
		v, err := l.Find(ctx, func(v *v1alpha1.PillarVolumeState) bool { return v.Spec.VolumeID == volumeID }, client.MatchingLabelsSelector{Selector: parsed})
		if err != nil || v != nil {
			return v, err
		}
	}
	return nil, nil
}

// hash is a label value for a volume ID, which is too long for one and holds slashes.
func hash(volumeID string) string {
	sum := sha256.Sum256([]byte(volumeID))
	return hex.EncodeToString(sum[:])[:40]
}

// Of answers every record of an agent, as the API server has them now.
func (l *Ledger) Of(ctx context.Context, agent string) ([]*v1alpha1.PillarVolumeState, error) {
	var own []*v1alpha1.PillarVolumeState
	_, err := l.Find(ctx, func(v *v1alpha1.PillarVolumeState) bool {
		if v.Spec.AgentRef == agent {
			own = append(own, v.DeepCopy()) // the others' page is not kept
		}
		return false
	})
	return own, err
}

// Create writes a new record and answers it, or storage.ErrConflict if one of that name
// exists: the loser of a race reads that one and resumes it.
func (l *Ledger) Create(ctx context.Context, v *v1alpha1.PillarVolumeState) (*v1alpha1.PillarVolumeState, error) {
	v = v.DeepCopy()
	controllerutil.AddFinalizer(v, v1alpha1.VolumeStateFinalizer)
	metav1.SetMetaDataLabel(&v.ObjectMeta, v1alpha1.VolumeHashLabel, hash(v.Spec.VolumeID))
	err := l.api.Create(ctx, v)
	if apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("volume state %s: %w", v.Name, storage.ErrConflict)
	}
	if err != nil {
		return nil, fmt.Errorf("create volume state %s: %w", v.Name, err)
	}
	return v, nil
}

// Update moves the status of the lifecycle v belongs to and answers the record that was
// written. change gets a fresh read each time and decides again; the write is skipped
// when it reports no change. Its error ends the operation. The errors are ErrLost, those
// of change, or an unexpected API failure.
func (l *Ledger) Update(ctx context.Context, v *v1alpha1.PillarVolumeState,
	change func(now *v1alpha1.PillarVolumeState) (changed bool, err error),
) (*v1alpha1.PillarVolumeState, error) {
	for range attempts {
		now, err := l.lifecycle(ctx, v.Name, v.UID)
		if err != nil {
			return nil, err
		}
		changed, err := change(now)
		if err != nil || !changed {
			return now, err
		}
		err = l.api.Status().Update(ctx, now)
		if err == nil {
			return now, nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("write status of volume state %s: %w", v.Name, err)
		}
		if err := sleep(ctx, rand.N(pause)); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("volume state %s: %d writes lost: %w", v.Name, attempts, ErrLost)
}

// Remove deletes the record and its finalizer. Only the end of a completed deletion calls
// it; a record already gone is success.
func (l *Ledger) Remove(ctx context.Context, v *v1alpha1.PillarVolumeState) error {
	for range attempts {
		now, err := l.lifecycle(ctx, v.Name, v.UID)
		if errors.Is(err, ErrLost) {
			return nil // this lifecycle's record is gone
		}
		if err != nil {
			return err
		}
		err = l.remove(ctx, now)
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("remove volume state %s: %w", v.Name, err)
		}
		if err := sleep(ctx, rand.N(pause)); err != nil {
			return err
		}
	}
	return fmt.Errorf("remove volume state %s: %d writes lost: %w", v.Name, attempts, ErrLost)
}

// remove marks the object as read for deletion, then takes the finalizer away.
func (l *Ledger) remove(ctx context.Context, now *v1alpha1.PillarVolumeState) error {
	if now.DeletionTimestamp.IsZero() {
		exact := client.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion}
		if err := l.api.Delete(ctx, now, exact); err != nil {
			return err
		}
		marked, err := l.lifecycle(ctx, now.Name, now.UID)
		if errors.Is(err, ErrLost) {
			return nil
		}
		if err != nil {
			return err
		}
		now = marked
	}
	if !controllerutil.RemoveFinalizer(now, v1alpha1.VolumeStateFinalizer) {
		return nil
	}
	return l.api.Update(ctx, now)
}

// lifecycle reads the record and insists on its UID.
func (l *Ledger) lifecycle(ctx context.Context, name string, uid types.UID) (*v1alpha1.PillarVolumeState, error) {
	now, err := l.Read(ctx, name)
	if errors.Is(err, storage.ErrNotFound) {
		return nil, fmt.Errorf("volume state %s is gone: %w", name, ErrLost)
	}
	if err != nil {
		return nil, err
	}
	if now.UID != uid {
		return nil, fmt.Errorf("volume state %s has UID %s, this operation began with %s: %w", name, now.UID, uid, ErrLost)
	}
	return now, nil
}

// Token is the authority the record's last write committed.
func Token(v *v1alpha1.PillarVolumeState) fencing.Token {
	return fencing.Token{UID: string(v.UID), Generation: v.Status.PublicationGeneration}
}

// Advance takes the next generation; it belongs into every write block.md B-52 names.
func Advance(v *v1alpha1.PillarVolumeState) { v.Status.PublicationGeneration++ }

// Phase answers the phase a decision may depend on: node stages read as Ready, an absent
// one as Provisioning, and a record with a recovery intent as RecoveryPending (B-58, B-59).
func Phase(v *v1alpha1.PillarVolumeState) v1alpha1.Phase {
	switch p := v.Status.Phase; p {
	case "", v1alpha1.PhaseProvisioning:
		if v.Spec.Recovery != nil {
			return v1alpha1.PhaseRecoveryPending
		}
		return v1alpha1.PhaseProvisioning
	case v1alpha1.PhaseControllerPublished, v1alpha1.PhaseNodeStagePartial, v1alpha1.PhaseNodeStaged, v1alpha1.PhaseNodePublished:
		return v1alpha1.PhaseReady
	default:
		return p
	}
}

// ClaimUID is the UID of the claim in a volume's name as the provisioner makes it,
// pvc-<UID>; empty if the name is of another kind.
func ClaimUID(name string) string {
	uid, ok := strings.CutPrefix(name, "pvc-")
	if !ok || uuid.Validate(uid) != nil {
		return ""
	}
	return uid
}

// sleep waits for d or answers the context's end.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
