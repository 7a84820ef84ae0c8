package node

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/roles/node/staging"
	"github.com/pillar-csi/pillar/storage/filesystem"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/mount"
)

// attacher is the way from a source to a device: roles/node/attach.
type attacher interface {
	Offers(s attach.Source) error
	Attach(ctx context.Context, s attach.Source) (attach.Device, error)
	Limit(ctx context.Context, s attach.Source) error
	Find(ctx context.Context, s attach.Source) (attach.Device, bool, error)
	Resize(ctx context.Context, s attach.Source, atLeast int64) (int64, error)
	Detach(ctx context.Context, s attach.Source) error
}

// mounter is the mount table and what changes it: storage/mount.
type mounter interface {
	Table() (mount.Table, error)
	Mount(source, target, fstype string, options []string) error
	Bind(source, target string, readOnly bool) error
	Unmount(path string) error
}

// formatter makes a device hold a filesystem, and that as large as the device:
// storage/filesystem.
type formatter interface {
	Prepare(ctx context.Context, dev filesystem.Device, want filesystem.Want) (formatted bool, err error)
	Grow(ctx context.Context, fstype, device, mountPoint string) error
}

// device is an open block device. While it is open the kernel gives its name and numbers
// to no other.
type device interface {
	filesystem.Device
	Numbers() (major, minor uint32)
	Close() error
}

// prober asks devices and mounted filesystems.
type prober interface {
	Open(path string) (device, error)
	// Flush writes what the kernel still caches for the device. Exclusive also proves
	// that nothing holds it: storage.ErrBusy if something does.
	Flush(ctx context.Context, path string, exclusive bool) error
	// Alive proves that the filesystem at path answers.
	Alive(ctx context.Context, path string) error
	Statfs(ctx context.Context, path string) (unix.Statfs_t, error)
}

// Config is what the node service knows about its node.
type Config struct {
	Name     string    // the Kubernetes node
	Root     host.Root // where /sys is
	PageSize int64     // bytes
}

// Server is the CSI Node service. The caller serialises calls for one volume.
type Server struct {
	csi.UnimplementedNodeServer
	cfg     Config
	records *staging.Records
	attach  attacher
	mounts  mounter
	format  formatter
	probe   prober
}

// NodeGetInfo names the node and what it can reach (block.md B-42). There is no limit on
// volumes.
func (s *Server) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	segments := map[string]string{attach.Prefix + "node-plugin": "true"}
	loaded, err := exists(s.cfg.Root.Path("sys/module/nvme_tcp"))
	if err != nil {
		return nil, fmt.Errorf("look for NVMe/TCP: %w", err)
	}
	if loaded {
		segments[attach.Prefix+"nvmeof"] = "true"
	}
	return &csi.NodeGetInfoResponse{
		NodeId:             s.cfg.Name,
		AccessibleTopology: &csi.Topology{Segments: segments},
	}, nil
}

// NodeGetCapabilities names what this service implements.
func (s *Server) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	resp := &csi.NodeGetCapabilitiesResponse{}
	for _, c := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

// view is what record, sysfs and mount table say about a volume at one moment. Nothing
// else decides what a call does.
type view struct {
	rec       staging.Record
	recorded  bool
	dev       attach.Device
	connected bool
	table     mount.Table
}

// look reads a volume's view. source is used when there is no record; nil: then nothing is
// known about a connection.
func (s *Server) look(ctx context.Context, volumeID string, source *attach.Source) (v view, err error) {
	if v.rec, v.recorded, err = s.records.Read(volumeID); err != nil {
		return view{}, csiserve.As(csiserve.Internal, err)
	}
	if v.recorded {
		source = &v.rec.Source
	}
	if source != nil {
		if v.dev, v.connected, err = s.attach.Find(ctx, *source); err != nil {
			return view{}, err
		}
	}
	v.table, err = s.mounts.Table()
	return v, err
}

// point is where a staged volume is mounted: the staging path itself, or the device node
// bound below it (block.md U-27).
func point(access staging.Access, stagingPath string) string {
	if access == staging.Block {
		return filepath.Join(stagingPath, "device")
	}
	return stagingPath
}

// shows reports whether a mount shows this device: all of its filesystem, or its node. A
// filesystem holds its device open, so equal numbers are the same device and no successor;
// a node whose device went away is listed with a root that ends in "//deleted".
func shows(e mount.Entry, access staging.Access, dev attach.Device) bool {
	if access == staging.Filesystem {
		return e.Root == "/" && e.Major == dev.Major && e.Minor == dev.Minor
	}
	return (e.Type == "devtmpfs" || e.Type == "tmpfs") && e.Root == "/"+filepath.Base(dev.Path)
}

// shared refuses a path below which a mount would be invisible to the host and to pods.
func shared(table mount.Table, path string) error {
	on, ok := table.Covering(path)
	if !ok || !on.Shared {
		return csiserve.As(csiserve.FailedPrecondition, fmt.Errorf(
			"%s lies on the mount %s, which is not shared with the host: a volume mounted there would never reach a pod", path, on.Path))
	}
	return nil
}
