package csiserve

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// Code is a gRPC status code.
type Code = codes.Code

// The codes a handler names when its CSI clause wants another than the table's.
const (
	InvalidArgument    = codes.InvalidArgument
	NotFound           = codes.NotFound
	AlreadyExists      = codes.AlreadyExists
	ResourceExhausted  = codes.ResourceExhausted
	FailedPrecondition = codes.FailedPrecondition
	Aborted            = codes.Aborted
	OutOfRange         = codes.OutOfRange
	Unimplemented      = codes.Unimplemented
	Internal           = codes.Internal
	Unavailable        = codes.Unavailable
	Unauthenticated    = codes.Unauthenticated
)

// codeOf is the table from kinds to codes (block.md appendix C).
var codeOf = []struct {
	kind error
	code Code
}{
	{fencing.ErrStale, FailedPrecondition}, // a rejection, whatever it wraps
	{fencing.ErrForeign, AlreadyExists},
	{fencing.ErrNotAdopted, FailedPrecondition},
	{fencing.ErrMark, Internal},
	{storage.ErrForeign, FailedPrecondition},
	{storage.ErrInvalid, InvalidArgument},
	{storage.ErrNotFound, NotFound},
	{storage.ErrConflict, AlreadyExists}, // same name, different shape
	{storage.ErrNoSpace, ResourceExhausted},
	{storage.ErrBusy, FailedPrecondition}, // device held
	{storage.ErrPrecondition, FailedPrecondition},
	{storage.ErrOutOfRange, OutOfRange},
	{storage.ErrUnsupported, Unimplemented},
	{transport.ErrInvalid, InvalidArgument},
	{transport.ErrNotFound, NotFound},
	{transport.ErrBusy, FailedPrecondition},
	{transport.ErrPrecondition, FailedPrecondition},
	{transport.ErrUnsupported, Unimplemented},
} // anything else is Internal

// coded is an error whose code somebody chose.
type coded struct {
	code Code
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// As gives err a code of its own, before any table.
func As(c Code, err error) error { return &coded{code: c, err: err} }

// Invalid says that a field of the request is unusable: InvalidArgument.
func Invalid(field, why string) error {
	return As(InvalidArgument, fmt.Errorf("%s: %s", field, why))
}

// CodeOf answers the code a caller will see for err: what As chose, else what the kind
// means, else the code of a gRPC call below, else that of an ended context, else Internal.
func CodeOf(err error) Code {
	if err == nil {
		return codes.OK
	}
	if c := (*coded)(nil); errors.As(err, &c) {
		return c.code
	}
	for _, row := range codeOf {
		if errors.Is(err, row.kind) {
			return row.code
		}
	}
	var remote interface{ GRPCStatus() *status.Status }
	if errors.As(err, &remote) {
		return remote.GRPCStatus().Code()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return status.FromContextError(err).Code()
	}
	return Internal
}

// toStatus turns a handler's error into the one gRPC sends.
func toStatus(err error) error {
	if err == nil {
		return nil
	}
	return status.Error(CodeOf(err), err.Error())
}
