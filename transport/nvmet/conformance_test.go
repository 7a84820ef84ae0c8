package nvmet

import (
	"testing"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
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
	hosttest.Need(t, "nvmet", "nvmet_tcp")
	disks := [2]string{hosttest.Disk(t, 0), hosttest.Disk(t, 1)}
	transporttest.Run(t, func(t *testing.T) transporttest.System {
		return transporttest.System{
			Target: kernelTarget(t), Kind: transport.NVMeTCP, Devices: disks,
			Portal:     transport.Portal{Address: "127.0.0.1", Port: 4420},
			Initiators: [2]string{host1, host2}, InvalidNames: invalidNQNs,
		}
	})
}

// kernelTarget is the guest's own target.
func kernelTarget(t *testing.T) *Target {
	t.Helper()
	if err := configfs.Mount(""); err != nil {
		t.Fatal(err)
	}
	tgt := New(configfs.New(""), Config{IdentityDir: t.TempDir()})
	if err := tgt.Available(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tgt
}
