package host_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/pillar-csi/pillar/storage/host"
)

// hanging is a pool whose programs do not end.
type hanging struct {
	ran  int
	disk chan struct{} // closed: it answers
}

func (h *hanging) Run(context.Context, string, ...string) ([]byte, error) {
	h.ran++
	select {
	case <-h.disk:
		return nil, nil
	default:
		return nil, &host.LingerError{Err: context.DeadlineExceeded, Gone: h.disk}
	}
}

// H-26: a pool that is asked again and again takes eight processes, and is asked again once
// they have ended.
func TestFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{disk: make(chan struct{})}
		few := &host.Few{Runner: h}
		for i := range 100 {
			want := context.DeadlineExceeded
			if i >= 8 {
				want = host.ErrHangs
			}
			if _, err := few.Run(t.Context(), "lvs"); !errors.Is(err, want) {
				t.Fatalf("Run %d = %v, want %v", i, err, want)
			}
		}
		if h.ran != 8 {
			t.Errorf("%d programs were started, want 8", h.ran)
		}
		close(h.disk)
		synctest.Wait()
		if _, err := few.Run(t.Context(), "lvs"); err != nil {
			t.Errorf("Run once the disk answers = %v", err)
		}
	})
}
