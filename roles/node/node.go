// Package node is the node plugin: the CSI Node service on every worker. It connects
// volumes, proves what is on them, formats only what is blank, mounts, and takes all of it
// back. What it owns on its host:
//
//	/etc/nvme/hostnqn, hostid            made if missing, never changed
//	/etc/iscsi/initiatorname.iscsi       the same, where iscsi_tcp is loaded
//	STATE-DIR/*.json                     one stage record per staged volume
//	KUBELET-DIR/plugins/kubernetes.io/csi/.../globalmount   staging mounts
//	KUBELET-DIR/pods/.../mount           binds of them
//	CSINode NAME, metadata.annotations   who this host is to storage nodes
//
// Every decision comes from the stage record, sysfs and the mount table, read anew in each
// call. Nothing that matters is only in memory.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	storageclient "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"

	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/node/attach"
	"github.com/pillar-csi/pillar/roles/node/staging"
	"github.com/pillar-csi/pillar/roles/telemetry"
	"github.com/pillar-csi/pillar/storage/filesystem"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/mount"
	"github.com/pillar-csi/pillar/transport/nvmf"
)

// driverName is the CSI driver's name (block.md B-6).
const driverName = "pillar-csi.bhyoo.com"

type options struct {
	csiAddress, nodeName, stateDir, kubeletDir, logLevel string
}

// Command is `pillar node`.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Serve the CSI Node service on a worker",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return run(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.csiAddress, "csi-address", "/csi/csi.sock", "socket to serve CSI on")
	f.StringVar(&o.nodeName, "node-name", os.Getenv("NODE_NAME"), "name of the Kubernetes node ($NODE_NAME)")
	f.StringVar(&o.stateDir, "state-dir", "/var/lib/pillar-csi/node", "directory of the stage records, on the host")
	f.StringVar(&o.kubeletDir, "kubelet-dir", "/var/lib/kubelet", "kubelet's root directory")
	f.StringVar(&o.logLevel, "zap-log-level", "info", "debug, info, warn or error")
	return cmd
}

// run serves until ctx ends.
func run(ctx context.Context, o options) error {
	log, err := telemetry.NewLogger(o.logLevel)
	if err != nil {
		return err
	}
	if o.nodeName == "" {
		return errors.New("no node name: set --node-name or NODE_NAME")
	}
	var root host.Root
	if err := propagated(kernelMounts{root}, o.kubeletDir); err != nil {
		return err
	}
	nvme, iqn, err := identities(root, log)
	if err != nil {
		return err
	}
	records, err := staging.Open(o.stateDir)
	if err != nil {
		return err
	}
	initiator := nvmf.New(root, nvmf.Config{HostNQN: nvme.HostNQN, HostID: nvme.HostID})
	server := newServer(root, o.nodeName, records, attach.New(initiator, iqn != ""))
	cluster, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("reach the Kubernetes API: %w", err)
	}
	api, err := storageclient.NewForConfig(cluster)
	if err != nil {
		return fmt.Errorf("reach the Kubernetes API: %w", err)
	}
	var background sync.WaitGroup
	defer background.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	background.Go(func() { publishIdentity(ctx, api.CSINodes(), o.nodeName, nvme.HostNQN, iqn, log) })
	return csiserve.Run(ctx, serving(o, root, records), log, func(r grpc.ServiceRegistrar) { csi.RegisterNodeServer(r, server) })
}

// newServer answers the Node service of this machine.
func newServer(root host.Root, name string, records *staging.Records, attacher *attach.Attacher) *Server {
	return &Server{
		cfg:     Config{Name: name, Root: root, PageSize: int64(os.Getpagesize())},
		records: records,
		attach:  attacher,
		mounts:  kernelMounts{root},
		format:  filesystem.Tools{Run: host.Exec{}, Root: root},
		probe:   kernelProbe{},
	}
}

func serving(o options, root host.Root, records *staging.Records) csiserve.Config {
	constraints := &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{
		Type: csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	}}}
	online := &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
		Type: csi.PluginCapability_VolumeExpansion_ONLINE,
	}}}
	return csiserve.Config{
		Address: o.csiAddress, Name: driverName, Version: telemetry.Version, Wait: true,
		Probe:        func(context.Context) error { return ready(root, records.Dir()) },
		Capabilities: []*csi.PluginCapability{constraints, online},
	}
}

// ready says why no volume could be staged now, or nil (block.md B-300).
func ready(root host.Root, dir string) error {
	usable, err := exists(root.Path("dev/nvme-fabrics"))
	if err != nil {
		return err
	}
	if !usable {
		return errors.New("no protocol is usable: /dev/nvme-fabrics is missing, load nvme_fabrics and nvme_tcp")
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return fmt.Errorf("stage records in %s cannot be written: %w", dir, err)
	}
	return nil
}

// identities reads or makes who this host is. An empty IQN means that iSCSI is off for the
// life of this process.
func identities(root host.Root, log *zap.Logger) (nvme nvmeIdentity, iqn string, err error) {
	if nvme, err = readNVMe(root); err != nil {
		return nvme, "", err
	}
	loaded, err := exists(root.Path("sys/class/iscsi_transport/tcp"))
	if err != nil {
		return nvme, "", fmt.Errorf("look for iscsi_tcp: %w", err)
	}
	if !loaded {
		log.Info("iSCSI initiator is disabled: the module iscsi_tcp is not loaded")
		return nvme, "", nil
	}
	iqn, err = readIQN(root)
	return nvme, iqn, err
}

// propagated refuses to start where mounts would not reach the host: pods would silently
// write to the wrong disk (hazards.md H-35).
func propagated(mounts interface{ Table() (mount.Table, error) }, kubeletDir string) error {
	table, err := mounts.Table()
	if err != nil {
		return err
	}
	for _, dir := range []string{kubeletDir + "/pods", kubeletDir + "/plugins/kubernetes.io/csi"} {
		if err := shared(table, dir); err != nil {
			return fmt.Errorf("kubelet directory (is --kubelet-dir right, and its mount Bidirectional?): %w", err)
		}
	}
	return nil
}
