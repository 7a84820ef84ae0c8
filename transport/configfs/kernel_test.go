package configfs_test

import (
	"testing"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

// The rules of the fake, held to the kernel.
func TestKernel_Rules(t *testing.T) {
	hosttest.Need(t, "nvmet", "nvmet_tcp")
	if err := configfs.Mount(""); err != nil {
		t.Fatal(err)
	}
	device := hosttest.Disk(t, 0)
	configfstest.Rules(t, func(*testing.T) configfstest.System {
		return configfstest.System{FS: configfs.Kernel(""), Device: device}
	})
}
