package host_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
		few := host.NewFew(h, 1, time.Minute)
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

// slow are programs that end when they are killed.
type slow struct{}

func (slow) Run(ctx context.Context, _ string, _ ...string) ([]byte, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// B-204, H-26: a program that takes too long dies, and says so; those behind it wait no longer
// than their own deadline.
func TestFew_slow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few := host.NewFew(slow{}, 2, time.Minute)
		for range 2 {
			go func() { _, _ = few.Run(t.Context(), "lvs") }()
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := few.Run(ctx, "lvs"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Run behind slow ones = %v, want its own deadline", err)
		}
		start := time.Now()
		_, err := few.Run(t.Context(), "lvs") // has its turn after 59 s
		if !errors.Is(err, host.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 119*time.Second {
			t.Errorf("Run = %v after %s, want %v after 1m59s", err, time.Since(start), host.ErrNoAnswer)
		}
	})
}
