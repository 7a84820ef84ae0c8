package agentrpc

import (
	"context"
	"errors"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// ErrUnavailable means that the agent did not act and will later: it is unreachable,
// its exports are gated, or it is draining.
var ErrUnavailable = errors.New("agent unavailable")

// Code is the canonical code of a call, for log lines.
type Code = codes.Code

// domain is the ErrorInfo domain of every reason below.
const domain = "pillar-csi.bhyoo.com"

// decisionKey names the fencing decision in an ErrorInfo's metadata.
const decisionKey = "fence_decision"

// kinds is the one table of what crosses the wire (block.md appendix C). The first row
// that matches an error wins, so a fencing rejection stays one whatever it wraps.
var kinds = []struct {
	kind   error
	code   codes.Code
	reason string
}{
	{fencing.ErrStale, codes.FailedPrecondition, "FENCING_STALE"},
	{fencing.ErrForeign, codes.AlreadyExists, "FENCING_FOREIGN"},
	{fencing.ErrNotAdopted, codes.FailedPrecondition, "FENCING_NOT_ADOPTED"},
	{fencing.ErrMark, codes.Internal, "FENCING_MARK"},
	{ErrUnavailable, codes.Unavailable, "AGENT_UNAVAILABLE"},

	{storage.ErrForeign, codes.FailedPrecondition, "STORAGE_FOREIGN"}, // of a create: fencing.ErrForeign
	{storage.ErrInvalid, codes.InvalidArgument, "STORAGE_INVALID"},
	{storage.ErrNotFound, codes.NotFound, "STORAGE_NOT_FOUND"},
	{storage.ErrConflict, codes.AlreadyExists, "STORAGE_CONFLICT"},
	{storage.ErrNoSpace, codes.ResourceExhausted, "STORAGE_NO_SPACE"},
	{storage.ErrBusy, codes.FailedPrecondition, "STORAGE_BUSY"},
	{storage.ErrPrecondition, codes.FailedPrecondition, "STORAGE_PRECONDITION"},
	{storage.ErrOutOfRange, codes.OutOfRange, "STORAGE_OUT_OF_RANGE"},
	{storage.ErrUnsupported, codes.Unimplemented, "STORAGE_UNSUPPORTED"},

	{transport.ErrInvalid, codes.InvalidArgument, "TRANSPORT_INVALID"},
	{transport.ErrNotFound, codes.NotFound, "TRANSPORT_NOT_FOUND"},
	{transport.ErrBusy, codes.FailedPrecondition, "TRANSPORT_BUSY"},
	{transport.ErrPrecondition, codes.FailedPrecondition, "TRANSPORT_PRECONDITION"},
	{transport.ErrUnsupported, codes.Unimplemented, "TRANSPORT_UNSUPPORTED"},

	{context.DeadlineExceeded, codes.DeadlineExceeded, "DEADLINE_EXCEEDED"},
	{context.Canceled, codes.Canceled, "CANCELED"},
}

// grpcKinds are the kinds of statuses that gRPC itself or a generated stub makes; they
// carry no reason.
var grpcKinds = map[codes.Code]error{
	codes.Unavailable:      ErrUnavailable,
	codes.Unimplemented:    storage.ErrUnsupported,
	codes.DeadlineExceeded: context.DeadlineExceeded,
	codes.Canceled:         context.Canceled,
}

// CodeOf is the code Status gives err.
func CodeOf(err error) Code {
	code, _ := classify(err)
	return code
}

func classify(err error) (code codes.Code, reason string) {
	if err == nil {
		return codes.OK, ""
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			return k.code, k.reason
		}
	}
	var st interface{ GRPCStatus() *status.Status }
	if errors.As(err, &st) {
		return st.GRPCStatus().Code(), ""
	}
	return codes.Internal, ""
}

// Status is the status that carries err to the caller: its code, its text, and its kind
// as a detail. A status already made stays; anything unknown is Internal.
func Status(err error) error {
	if err == nil {
		return nil
	}
	code, reason := classify(err)
	st := status.New(code, err.Error())
	if reason == "" {
		return st.Err()
	}
	info := &errdetails.ErrorInfo{Domain: domain, Reason: reason}
	if d := decision(err); d != "" {
		info.Metadata = map[string]string{decisionKey: d}
	}
	if detailed, err := st.WithDetails(info); err == nil {
		st = detailed
	}
	return st.Err()
}

// Result is one item's answer in a reconcile; nil is success.
func Result(volume string, err error) *agentpb.ReconcileItemResult {
	code, reason := classify(err)
	r := &agentpb.ReconcileItemResult{VolumeId: volume, Code: int32(code), Reason: reason}
	if err != nil {
		r.Message, r.FenceDecision = err.Error(), decision(err)
	}
	return r
}

func decision(err error) string {
	var r *fencing.Rejection
	if errors.As(err, &r) {
		return string(r.Decision)
	}
	return ""
}

// fromStatus gives a call's error its kind back.
func fromStatus(err error) error {
	if err == nil {
		return nil
	}
	st, ok := status.FromError(err)
	if !ok {
		return err // never on the wire
	}
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && info.Domain == domain {
			return remote(st, info.Reason, info.Metadata[decisionKey])
		}
	}
	return remote(st, "", "")
}

func fromResult(r *agentpb.ReconcileItemResult) error {
	if r.Code == int32(codes.OK) {
		return nil
	}
	return remote(status.New(codes.Code(r.Code), r.Message), r.Reason, r.FenceDecision)
}

func remote(st *status.Status, reason, decision string) error {
	e := &remoteError{status: st, kind: grpcKinds[st.Code()]}
	for _, k := range kinds {
		if k.reason == reason {
			e.kind = k.kind
		}
	}
	if errors.Is(e.kind, fencing.ErrStale) {
		e.kind = errors.Join(e.kind, &fencing.Rejection{Decision: fencing.Decision(decision)})
	}
	return e
}

// remoteError is a failure the agent reported: its text, its code, its kind.
type remoteError struct {
	status *status.Status
	kind   error // nil: none a caller acts on
}

func (e *remoteError) Error() string              { return e.status.Message() }
func (e *remoteError) Unwrap() error              { return e.kind }
func (e *remoteError) GRPCStatus() *status.Status { return e.status }
