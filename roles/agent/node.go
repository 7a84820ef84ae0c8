package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"go.uber.org/zap"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/zfs"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/nvmet"
)

// node is the storage node an agent works on: the host, or one in memory.
type node struct {
	run      host.Runner
	root     host.Root
	devices  devices
	configfs configfs.Dir
	mount    func() error // sees to it that configfs is mounted
	version  string

	simulated *dryrun.Machine // nil: the host
}

// openNode answers the node that the configuration asks for.
func openNode(cfg Config, f file, log *zap.Logger) (node, error) {
	if cfg.Simulate == 0 {
		return kernelNode(cmp.Or[host.Runner](cfg.Run, host.Exec{}), cfg.Root), nil
	}
	m, err := dryrun.NewMachine(cfg.StateDir, f.pools(cfg.Simulate), func(e dryrun.Effect) {
		log.Info("dry-run", zap.Stringer("would", e))
	})
	if err != nil {
		return node{}, err
	}
	return simulatedNode(m), nil
}

func kernelNode(run host.Runner, root host.Root) node {
	return node{
		run: run, root: root, devices: kernelDevices{root}, configfs: configfs.New(root), version: telemetry.Version,
		mount: func() error { return configfs.Mount(root) },
	}
}

func simulatedNode(m *dryrun.Machine) node {
	return node{
		run: m, root: m.Root(), devices: simulatedDevices{m}, configfs: m.Configfs(), version: telemetry.Version + "+dry-run",
		mount: func() error { return nil }, simulated: m,
	}
}

func (n node) close() error {
	if n.simulated == nil {
		return nil
	}
	return n.simulated.Close()
}

// server answers an agent on the node whose marks and identities are in st.
func (n node) server(f file, st *state, log *zap.Logger) (*server, error) {
	marks, err := fencing.Open(st.path("generations"))
	if err != nil {
		return nil, err
	}
	s := newServer(log, st, marks, n.volumes(f), n.targets(st.path("nvmet-identity"), log), n.mount)
	s.root, s.version = n.root, n.version
	return s, nil
}

// volumes makes the backend of every entry. One line per backend type.
func (n node) volumes(f file) *volumes {
	v := &volumes{devices: n.devices}
	for _, e := range f.Backends {
		switch {
		case e.ZFS != nil:
			v.pools = append(v.pools, n.zvolPool(e.ZFS))
		case e.LVM != nil:
			v.pools = append(v.pools, n.lvmPool(e.LVM))
		}
	}
	return v
}

func (n node) zvolPool(e *zfsEntry) pool {
	cfg := e.config()
	if n.simulated != nil {
		cfg.Ask = n.simulated.Ask
	}
	zvols := zfs.New(n.run, n.root, cfg)
	return pool{
		name: e.Pool, backend: storage.ZFSZvol, parent: e.ParentDataset,
		check:   cfg.CheckName,
		device:  func(volume string) string { return filepath.Join("/dev/zvol", e.Pool, e.ParentDataset, volume) },
		Backend: zvols,
	}
}

func (n node) lvmPool(e *lvmEntry) pool {
	cfg := lvm.Config{VolumeGroup: e.VolumeGroup, ThinPool: e.ThinPool, Tenants: nvmet.Prefix}
	if n.simulated != nil {
		cfg.Open = n.simulated.Open
	}
	return pool{
		name: e.VolumeGroup, backend: storage.LVMLV, thinPool: e.ThinPool, mode: e.ProvisioningMode,
		check:   lvm.CheckName,
		device:  func(volume string) string { return filepath.Join("/dev", e.VolumeGroup, volume) },
		Backend: lvm.New(n.run, n.root, cfg),
	}
}

// targets makes every protocol. One line each.
func (n node) targets(identities string, log *zap.Logger) targets {
	var exposed sync.Once
	cfg := nvmet.Config{
		IdentityDir: identities, Root: n.root, Quiet: nvmet.KeepOut,
		Unbounded: sync.OnceFunc(func() {
			log.Info("transfer limits are left to the nodes: this kernel's nvmet has no param_mdts (Linux 7.1 has)")
		}),
		Unquiet: func(err error) {
			exposed.Do(func() {
				log.Warn("hosts of Linux 6.11 or later that connect while a port is being opened may lose their volume: this kernel does not keep them out", zap.Error(err))
			})
		},
	}
	if n.simulated != nil {
		cfg.Number, cfg.Quiet = n.simulated.Number, nil
	}
	return targets{transport.NVMeTCP: nvmeTCP{nvmet.New(n.configfs, cfg)}}
}

// pools answers what a simulated node has: the configured pools, of so many bytes each.
func (f file) pools(bytes int64) (all []dryrun.Pool) {
	for _, e := range f.Backends {
		switch {
		case e.ZFS != nil:
			all = append(all, dryrun.Pool{ZFS: e.ZFS.Pool, ParentDataset: e.ZFS.ParentDataset, Bytes: bytes})
		case e.LVM != nil:
			all = append(all, dryrun.Pool{VolumeGroup: e.LVM.VolumeGroup, ThinPool: e.LVM.ThinPool, Bytes: bytes})
		}
	}
	return all
}

// simulatedDevices are the devices of a machine in memory.
type simulatedDevices struct{ *dryrun.Machine }

// Hold implements devices. Nobody but the agent has a path lead elsewhere there.
func (d simulatedDevices) Hold(path string, _ storage.DeviceID) (release func() error, err error) {
	return d.Machine.Hold(path)
}

// Ready implements devices.
func (d simulatedDevices) Ready(path string) error {
	err := d.Machine.Ready(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errNoDevice, err)
	}
	return err
}
