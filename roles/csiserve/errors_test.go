package csiserve

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

func TestCodeOf(t *testing.T) {
	remote := status.Error(codes.Unavailable, "agent draining")
	tests := map[string]struct {
		err  error
		want Code
	}{
		"nil":                       {nil, codes.OK},
		"invalid field":             {Invalid("name", "is empty"), InvalidArgument},
		"wrapped kind":              {fmt.Errorf("create pvc-1: %w", storage.ErrNoSpace), ResourceExhausted},
		"two kinds, first row wins": {errors.Join(transport.ErrBusy, storage.ErrNotFound), NotFound},
		"chosen code before kind":   {As(Aborted, storage.ErrNotFound), Aborted},
		"chosen code, wrapped":      {fmt.Errorf("stage: %w", As(OutOfRange, errors.New("shrink"))), OutOfRange},
		"kind before remote code":   {fmt.Errorf("%w: %w", storage.ErrConflict, remote), AlreadyExists},
		"remote code":               {fmt.Errorf("agent storage-1: %w", remote), Unavailable},
		"deadline":                  {fmt.Errorf("wait: %w", context.DeadlineExceeded), codes.DeadlineExceeded},
		"anything else":             {errors.New("mkfs: exit status 1"), Internal},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := CodeOf(test.err); got != test.want {
				t.Errorf("CodeOf(%v) = %v, want %v", test.err, got, test.want)
			}
		})
	}
}

func TestCodeOf_EveryRow(t *testing.T) {
	for _, row := range codeOf {
		if got := CodeOf(fmt.Errorf("x: %w", row.kind)); got != row.code {
			t.Errorf("CodeOf(%v) = %v, want %v", row.kind, got, row.code)
		}
	}
}
