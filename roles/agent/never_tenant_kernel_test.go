package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/nvmf"
)

// H-15: a storage node that is a worker, too, has a tenant's disk attached, and on it is a
// volume group of the pool's own name. LVM never looks at it: the pool goes on.
func TestAgent_tenantsGroup_kernel(t *testing.T) {
	m := newMachine(t)
	hosttest.Need(t, "nvme_tcp")
	m.mustStart()
	m.must(m.restore())
	m.must(m.create(1))
	m.must(m.export(2, host1))
	h := nvmf.New("", nvmf.Config{HostNQN: host1, HostID: strings.TrimPrefix(host1, "nqn.2014-08.org.nvmexpress:uuid:")})
	dev, err := h.Attach(t.Context(), nvmf.Target{NQN: testNQN, Portal: testPortal, CtrlLossTmo: new(5), ReconnectDelay: new(1)})
	m.must(err)
	detach := func() error { return h.Detach(context.WithoutCancel(t.Context()), testNQN, transport.Portal{}) }
	elsewhere := `dir="` + t.TempDir() + `" scan="/dev" ` // vgcreate takes no name that has a directory
	m.must(m.run("vgcreate", "--yes", "--config", `devices{`+elsewhere+`use_devicesfile=0 filter=["a|^`+dev.Path+`$|","r|.*|"]}`, testGroup, dev.Path))
	const byID = "/dev/disk/by-id" // a udev daemon gives every PV a link
	link := byID + "/lvm-pv-uuid-pillar-test"
	m.must(errors.Join(os.MkdirAll(byID, 0o755), os.Symlink(dev.Path, link)))
	defer os.Remove(link)

	if health, err := m.Health(t.Context()); err != nil || !healthy(health, "pool") {
		t.Errorf("Health = %+v, %v, want a healthy pool", health, err)
	}
	other := m.spec(8 << 20)
	other.ID.Name = "pvc-2"
	if _, err := m.CreateVolume(t.Context(), token(1), other); err != nil {
		t.Errorf("CreateVolume = %v", err)
	}
	if err := m.DeleteVolume(t.Context(), token(1), storage.LVMLV, other.ID); err != nil {
		t.Errorf("DeleteVolume = %v", err)
	}
	m.must(errors.Join(detach(), m.unexport(3), m.remove(3)))
	m.wantNothing()
}

// A pool may well lie on disks that are attached over NVMe/TCP: from a SAN, not from pillar.
func TestAgent_groupOnNVMe_kernel(t *testing.T) {
	m := newMachine(t)
	hosttest.Need(t, "nvme_tcp")
	const nqn = "nqn.2020-01.com.example:san"
	disk := filepath.Join(t.TempDir(), "disk")
	m.must(errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 64<<20)))
	defer m.wipe()
	sub, port := filepath.Join(nvmetDir, "subsystems", nqn), filepath.Join(nvmetDir, "ports/7")
	m.must(errors.Join(os.MkdirAll(sub+"/namespaces/1", 0o755), os.MkdirAll(port, 0o755)))
	for _, w := range [][2]string{
		{sub + "/attr_allow_any_host", "1"}, {sub + "/namespaces/1/device_path", disk}, {sub + "/namespaces/1/buffered_io", "1"}, {sub + "/namespaces/1/enable", "1"},
		{port + "/addr_trtype", "tcp"}, {port + "/addr_adrfam", "ipv4"}, {port + "/addr_traddr", testPortal.Address}, {port + "/addr_trsvcid", "14421"},
	} {
		m.must(os.WriteFile(w[0], []byte(w[1]), 0))
	}
	m.must(os.Symlink(sub, port+"/subsystems/"+nqn))
	h := nvmf.New("", nvmf.Config{HostNQN: host1, HostID: strings.TrimPrefix(host1, "nqn.2014-08.org.nvmexpress:uuid:")})
	dev, err := h.Attach(t.Context(), nvmf.Target{NQN: nqn, Portal: transport.Portal{Address: testPortal.Address, Port: 14421}, CtrlLossTmo: new(5), ReconnectDelay: new(1)})
	m.must(err)
	defer h.Detach(context.WithoutCancel(t.Context()), nqn, transport.Portal{})
	m.must(m.run("vgremove", "--yes", testGroup))
	m.must(m.run("vgcreate", "--yes", testGroup, "--config", `devices{filter=["a|^`+dev.Path+`$|","r|.*|"]}`, dev.Path))
	m.mustStart()
	m.must(errors.Join(m.restore(), m.create(1), m.remove(2), m.run("vgremove", "--yes", testGroup)))
}
