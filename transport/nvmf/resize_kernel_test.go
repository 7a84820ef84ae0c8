package nvmf_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
)

// B-455: a device grows under a connected host, which keeps its connection and its device.
func TestKernel_resize(t *testing.T) {
	const mib = 1 << 20
	l := newLoop(t)
	grows := hosttest.NewLinear(t, "pillar-nvmf-grows", l.disk, 32*mib)
	l.disk = grows.Path
	t.Cleanup(func() { // before the device goes
		end, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), 20*time.Second)
		defer cancel()
		l.must(errors.Join(l.host.Detach(end, l.nqn, loopback), l.target.Unexport(end, volume, l.disk)))
	})
	if _, err := l.host.Resize(l.ctx, l.nqn, 1); !errors.Is(err, transport.ErrNotFound) {
		t.Errorf("Resize before connecting = %v, want ErrNotFound", err)
	}
	dev := l.connected()
	l.mustSize(1, 32*mib)
	grows.Resize(48 * mib)
	l.must(l.target.Resize(l.ctx, volume, l.disk))
	l.mustSize(48*mib, 48*mib)
	l.must(l.target.Resize(l.ctx, volume, l.disk)) // a retry
	l.mustSize(0, 48*mib)

	grows.Resize(64 * mib) // and the notice is lost: the scan alone finds it
	l.mustSize(64*mib, 64*mib)
	short, cancel := context.WithTimeout(l.ctx, time.Second)
	defer cancel()
	if size, err := l.host.Resize(short, l.nqn, 65*mib); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Resize past the device = %d, %v, want the deadline", size, err)
	}
	now, err := l.host.Device(l.ctx, l.nqn)
	dev.Created = false
	if err != nil || now != dev {
		t.Errorf("Device = %+v, %v, want %+v as before", now, err, dev)
	}
}

func (l *loop) mustSize(atLeast, want int64) {
	l.t.Helper()
	if got, err := l.host.Resize(l.ctx, l.nqn, atLeast); err != nil || got != want {
		l.t.Errorf("Resize(%d) = %d, %v, want %d", atLeast, got, err, want)
	}
}
