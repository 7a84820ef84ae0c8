package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// CreateVolume makes a volume and its export, or goes on where an earlier attempt of that
// name ended:
//
//	record written -> Provisioning -> agent create -> CreatePartial -> agent export -> Ready
//
// Every arrow may be cut by a crash; the record says what is known to exist, and why it
// goes no further.
func (s *Server) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	w, err := parseCreate(req)
	if err != nil {
		return nil, err
	}
	v, err := s.record(ctx, w)
	if err != nil {
		return nil, s.answer("", err)
	}
	if ledger.Phase(v) == v1alpha1.PhaseReady {
		csiserve.Unchanged(ctx)
	}
	agent := v.Spec.AgentRef
	if v, err = s.converge(ctx, w, v); err != nil {
		return nil, s.answer(agent, err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId:      v.Spec.VolumeID,
		CapacityBytes: v.Status.CapacityBytes,
		VolumeContext: volumeContext(v),
	}}, nil
}

// record answers the volume's record, written now if this is the first attempt.
func (s *Server) record(ctx context.Context, w createRequest) (*v1alpha1.PillarVolumeState, error) {
	v, err := s.ledger.Read(ctx, w.name)
	if errors.Is(err, storage.ErrNotFound) {
		v, err = s.first(ctx, w)
		if !errors.Is(err, storage.ErrConflict) {
			return v, err
		}
		v, err = s.ledger.Read(ctx, w.name) // the other of two first attempts was faster
	}
	if err != nil {
		return nil, err
	}
	if err := unfit(w.bad, transport.Kind(v.Spec.ProtocolType), w.caps); err != nil {
		return nil, err
	}
	return v, s.sameClaim(ctx, w, v)
}

// first makes the record, or answers storage.ErrConflict if there is one by now.
func (s *Server) first(ctx context.Context, w createRequest) (*v1alpha1.PillarVolumeState, error) {
	v, err := s.plan(ctx, w)
	if err != nil {
		return nil, err
	}
	return s.reserve(ctx, v)
}

// converge takes the volume to Ready from whatever phase it is in (block.md B-84). Each
// turn moves one phase or fails.
func (s *Server) converge(ctx context.Context, w createRequest, v *v1alpha1.PillarVolumeState) (*v1alpha1.PillarVolumeState, error) {
	for {
		var err error
		switch phase := ledger.Phase(v); {
		case v.Status.Deleting:
			err = csiserve.As(csiserve.Aborted, fmt.Errorf("volume %s is being deleted", v.Name))
		case phase == v1alpha1.PhaseReady:
			return v, w.fits(v)
		case v.Spec.Resolved == nil:
			err = fmt.Errorf("record of volume %s has no resolved settings", v.Name)
		case adopted(v):
			err = notYet("going on with the import of volume "+v.Name, "delete its claim")
		case phase == v1alpha1.PhaseProvisioning:
			v, err = s.provision(ctx, w, v)
		case phase == v1alpha1.PhaseCreatePartial:
			v, err = s.export(ctx, w, v)
		default:
			err = csiserve.As(csiserve.FailedPrecondition, fmt.Errorf("volume %s is in phase %s, which CreateVolume cannot leave", v.Name, phase))
		}
		if err != nil {
			return nil, err
		}
	}
}

// provision has the agent make the backend under a new generation and records the device.
func (s *Server) provision(ctx context.Context, w createRequest, v *v1alpha1.PillarVolumeState) (*v1alpha1.PillarVolumeState, error) {
	if w.limit > 0 && v.Spec.CapacityBytes > w.limit {
		return nil, csiserve.As(csiserve.AlreadyExists, fmt.Errorf("volume %s is being made with %d bytes; limit is %d", v.Name, v.Spec.CapacityBytes, w.limit))
	}
	a, err := s.agent(ctx, v, csiserve.FailedPrecondition)
	if err != nil {
		return nil, err
	}
	v, err = s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if now.Status.Deleting || ledger.Phase(now) != v1alpha1.PhaseProvisioning {
			return false, nil // converge decides again
		}
		now.Status.Phase = v1alpha1.PhaseProvisioning
		ledger.Advance(now)
		return true, nil
	})
	if err != nil || v.Status.Deleting || ledger.Phase(v) != v1alpha1.PhaseProvisioning {
		return v, err
	}
	made, err := a.client.CreateVolume(ctx, ledger.Token(v), a.spec(v))
	if err != nil {
		return nil, s.stopped(ctx, v, "CreateVolume", a.failed("create volume", err))
	}
	if made.Bytes < v.Spec.CapacityBytes { // nothing is recorded of what nobody asked for
		err := fmt.Errorf("agent %s: create volume: answered %d bytes, asked for %d", v.Spec.AgentRef, made.Bytes, v.Spec.CapacityBytes)
		return nil, s.stopped(ctx, v, "CreateVolume", csiserve.As(csiserve.Internal, err))
	}
	attempt := v.Status.PublicationGeneration
	return s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if err := sameAttempt(now, attempt); err != nil {
			return false, err
		}
		provisioned(now, made, a.exportSpec(now))
		return true, nil
	})
}

// provisioned records that the backend exists and what its export will be.
func provisioned(v *v1alpha1.PillarVolumeState, made storage.Volume, spec v1alpha1.ExportSpec) {
	v.Status.Phase = v1alpha1.PhaseCreatePartial
	v.Status.BackendDevicePath = made.DevicePath
	v.Status.CapacityBytes = made.Bytes
	v.Status.ExportSpec = &spec
	v.Status.PartialFailure = &v1alpha1.PartialFailure{
		FailedOperation: "ExportVolume", FailedAt: metav1.NewTime(time.Now()), BackendCreated: true,
	}
	condition(v, v1alpha1.BackendCreated, v1alpha1.ReasonCreated, "backend volume exists")
	ledger.Advance(v)
}

// export has the agent export the backend as recorded and records success. The backend
// is not created again over any number of failures. One that came out above the limit is
// not exported: it stays CreatePartial, and goes with its claim (block.md U-7).
func (s *Server) export(ctx context.Context, w createRequest, v *v1alpha1.PillarVolumeState) (*v1alpha1.PillarVolumeState, error) {
	if err := w.fits(v); err != nil {
		return nil, s.stopped(ctx, v, "CreateVolume", err)
	}
	a, err := s.agent(ctx, v, csiserve.FailedPrecondition)
	if err != nil {
		return nil, err
	}
	spec := a.exportSpec(v)
	v, err = s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if now.Status.Deleting || ledger.Phase(now) != v1alpha1.PhaseCreatePartial || equality.Semantic.DeepEqual(now.Status.ExportSpec, &spec) {
			return false, nil
		}
		now.Status.ExportSpec = &spec // the agent moved since
		ledger.Advance(now)
		return true, nil
	})
	if err != nil || v.Status.Deleting || ledger.Phase(v) != v1alpha1.PhaseCreatePartial {
		return v, err
	}
	want, _ := ledger.Desired(v) // exportSpec is set just above
	want.Export.DevicePath = v.Status.BackendDevicePath
	target, err := a.client.ExportVolume(ctx, want.Token, want.Backend, want.Export)
	if err == nil && (target.ID == "" || target.Portal.Address == "" || target.Portal.Port == 0) {
		// A PersistentVolume keeps what is recorded here for life.
		err = csiserve.As(csiserve.Internal, fmt.Errorf("answered target %q at %q port %d, which no host could reach", target.ID, target.Portal.Address, target.Portal.Port))
	}
	if err != nil {
		return nil, s.stopped(ctx, v, "ExportVolume", a.failed("export volume", err))
	}
	attempt := v.Status.PublicationGeneration
	return s.ledger.Update(ctx, v, func(now *v1alpha1.PillarVolumeState) (bool, error) {
		if err := sameAttempt(now, attempt); err != nil {
			return false, err
		}
		exported(now, target)
		return true, nil
	})
}

// exported records that the export serves: CreateVolume may report success.
func exported(v *v1alpha1.PillarVolumeState, t transport.Target) {
	v.Status.Phase = v1alpha1.PhaseReady
	v.Status.ExportInfo = &v1alpha1.ExportInfo{
		TargetID: t.ID, Address: t.Portal.Address, Port: int32(t.Portal.Port), VolumeRef: t.Ref,
	}
	v.Status.PartialFailure, v.Status.BackendDevicePath = nil, ""
	condition(v, v1alpha1.ExportCreated, v1alpha1.ReasonCreated, "export serves at "+t.Portal.String())
	condition(v, v1alpha1.Ready, v1alpha1.ReasonAllConditionsMet, "backend and export exist")
}

// sameAttempt is ledger.ErrLost if another operation took the volume over while the agent
// worked (block.md B-140).
func sameAttempt(now *v1alpha1.PillarVolumeState, generation int64) error {
	if now.Status.Deleting || now.Status.PublicationGeneration != generation {
		return fmt.Errorf("volume %s went on from generation %d to %d: %w", now.Name, generation, now.Status.PublicationGeneration, ledger.ErrLost)
	}
	return nil
}

// fits compares the actual size with what this request allows: AlreadyExists for a volume
// CreateVolume reported or would not be enough, OutOfRange for one it just made too large.
func (w *createRequest) fits(v *v1alpha1.PillarVolumeState) error {
	actual, code := v.Status.CapacityBytes, csiserve.AlreadyExists
	switch {
	case actual >= w.required && (w.limit == 0 || actual <= w.limit):
		return nil
	case actual >= w.required && ledger.Phase(v) != v1alpha1.PhaseReady:
		code = csiserve.OutOfRange
	}
	limit := ""
	if w.limit > 0 {
		limit = fmt.Sprintf(", limit is %d", w.limit)
	}
	return csiserve.As(code, fmt.Errorf("volume %s has %d bytes; required are %d%s", v.Name, actual, w.required, limit))
}

// condition sets a condition True.
func condition(v *v1alpha1.PillarVolumeState, kind, reason, message string) {
	meta.SetStatusCondition(&v.Status.Conditions, metav1.Condition{
		Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: v.Generation,
	})
}
