package node

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pillar-csi/pillar/roles/csiserve"
)

// oneVolume is the little of a controller service the suite's node half asks for: every
// volume is the machine's.
type oneVolume struct {
	csi.UnimplementedControllerServer
}

func (oneVolume) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	resp := &csi.ControllerGetCapabilitiesResponse{}
	for _, c := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME, csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
	} {
		resp.Capabilities = append(resp.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: c}},
		})
	}
	return resp, nil
}

func (oneVolume) CreateVolume(context.Context, *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{VolumeId: volumeID, CapacityBytes: 16 * mib, VolumeContext: volumeContext()}}, nil
}

func (oneVolume) DeleteVolume(context.Context, *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	return &csi.DeleteVolumeResponse{}, nil
}

func (oneVolume) ControllerPublishVolume(context.Context, *csi.ControllerPublishVolumeRequest) (*csi.ControllerPublishVolumeResponse, error) {
	return &csi.ControllerPublishVolumeResponse{}, nil
}

func (oneVolume) ControllerUnpublishVolume(context.Context, *csi.ControllerUnpublishVolumeRequest) (*csi.ControllerUnpublishVolumeResponse, error) {
	return &csi.ControllerUnpublishVolumeResponse{}, nil
}

// TestSanity runs the CSI community's own suite against the node and identity services.
func TestSanity(t *testing.T) {
	m := newMachine(t)
	dir, err := os.MkdirTemp("", "csi") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	server := m.server()
	cfg := serving(options{csiAddress: filepath.Join(dir, "s")}, rootWith(t, map[string]string{"dev/nvme-fabrics": ""}), server.records)
	cfg.Capabilities = append(cfg.Capabilities, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{
		Service: &csi.PluginCapability_Service{Type: csi.PluginCapability_Service_CONTROLLER_SERVICE}}})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- csiserve.Run(ctx, cfg, zap.NewNop(), func(r grpc.ServiceRegistrar) {
			csi.RegisterNodeServer(r, server)
			csi.RegisterControllerServer(r, oneVolume{})
		})
	}()
	suite := sanity.NewTestConfig()
	suite.Address = "unix://" + cfg.Address
	suite.TargetPath, suite.StagingPath = filepath.Join(dir, "t"), filepath.Join(dir, "g")
	sanity.GinkgoTest(&suite)
	gomega.RegisterFailHandler(ginkgo.Fail)
	suiteConfig, report := ginkgo.GinkgoConfiguration()
	suiteConfig.FocusStrings = []string{"Node Service", "Identity Service"}
	ginkgo.RunSpecs(t, "CSI node", suiteConfig, report)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if m.connected || m.recorded() || len(m.table) != 2 {
		t.Errorf("left: connected %v, record %v, mounts %v", m.connected, m.recorded(), m.table[2:])
	}
}
