package nvmet

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/transporttest"
)

var invalidNQNs = []string{"", "..", "nqn.2026-01.com.example:a/b", "iqn.2026-01.com.example:a"}

func TestTarget_conformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.System {
		_, tgt := inMemory(t)
		return transporttest.System{
			Target: tgt, Kind: transport.NVMeTCP, Devices: [2]string{"/dev/null", "/dev/zero"},
			Portal: portal, Initiators: [2]string{host1, host2}, InvalidNames: invalidNQNs,
		}
	})
}

func TestKernel_conformance(t *testing.T) {
	transporttest.Run(t, func(t *testing.T) transporttest.System {
		_, tgt := onKernel(t)
		must(t, tgt.Available(t.Context()))
		return transporttest.System{
			Target: tgt, Kind: transport.NVMeTCP, Devices: [2]string{device, device2},
			Portal: portal, Initiators: [2]string{host1, host2}, InvalidNames: invalidNQNs,
		}
	})
}

// B-426, N-45: a device that is held is not enabled. P-8: the kernel itself would not
// notice, because an enabled namespace holds nothing.
func TestKernel_heldDevice(t *testing.T) {
	k, tgt := onKernel(t)
	release, err := hold(device)
	must(t, err)
	if _, err := tgt.Export(t.Context(), export(nil), hold); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Export of a held device = %v, want EBUSY", err)
	}
	if _, atAll := reachable(t, k); atAll {
		t.Error("a held device is reachable")
	}
	must(t, release())
	_, err = tgt.Export(t.Context(), export(nil), hold)
	must(t, err)
	release, err = hold(device)
	if err != nil {
		t.Fatalf("hold of an enabled namespace's device = %v, want success: then B-426 could ask the kernel", err)
	}
	must(t, release())
}

// Something that listens at the portal is named, and the export works once it is gone.
func TestKernel_portalTaken(t *testing.T) {
	_, tgt := onKernel(t)
	other, err := net.Listen("tcp", portal.String())
	must(t, err)
	err = exports()(t, tgt)
	if !errors.Is(err, transport.ErrPrecondition) || !strings.Contains(err.Error(), "something else listens at "+portal.String()) {
		t.Errorf("Export at a taken portal = %v, want ErrPrecondition that says so", err)
	}
	must(t, other.Close())
	exporting()(t, tgt)
}
