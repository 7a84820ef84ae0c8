package controller

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// nameOnly is the little of a node service the suite's controller half asks for.
type nameOnly struct {
	csi.UnimplementedNodeServer
	node string
}

func (n nameOnly) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.node}, nil
}

func (n nameOnly) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

func (n nameOnly) NodeUnpublishVolume(context.Context, *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// kubernetesNames hands the suite's names on as Kubernetes would: lower-case, and no longer
// than a logical volume's name may be. The suite makes 128 bytes and upper-case digits.
type kubernetesNames struct{ *Server }

func (s kubernetesNames) CreateVolume(ctx context.Context, req *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	req.Name = strings.ToLower(req.GetName())
	req.Name = req.Name[:min(len(req.Name), 127)]
	return s.Server.CreateVolume(ctx, req)
}

const nodeService = "Node Service"

// skips are the suite's reasons to leave a spec out, and ours for not offering what it is
// about.
var skips = map[string]string{
	"ListVolumes not supported":                            "B-62: not offered",
	"Snapshot not supported":                               "B-62: no snapshots",
	"ListSnapshots not supported":                          "B-62: no snapshots",
	"GetSnapshot not supported":                            "B-62: no snapshots",
	"CreateSnapshot not supported":                         "B-62: no snapshots",
	"DeleteSnapshot not supported":                         "B-62: no snapshots",
	"SNAPSHOT_ACCESSIBILITY_CONSTRAINTS not supported":     "B-62: no snapshots",
	"Volume Cloning not supported":                         "B-62: no clones",
	"Modify volume not supported":                          "a VolumeAttributesClass is refused",
	"Modify Volume not supported":                          "a VolumeAttributesClass is refused",
	"ControllerModifyVolume not supported":                 "a VolumeAttributesClass is refused",
	"ControllerGetVolumeHealth not supported":              "api.md 9.1: not offered",
	"ControllerListVolumeHealth not supported":             "api.md 9.1: not offered",
	"GroupControllerService not supported":                 "B-62: no snapshots",
	"VolumeGroupSnapshots not supported":                   "B-62: no snapshots",
	"testnodevolumeattachlimit not enabled":                "nodes report no limit",
	"ControllerPublishVolume.readonly field not supported": "api.md 9.1 offers no PUBLISH_READONLY; B-93 is a row of TestCodes_ControllerPublishVolume",
}

// explain prints every spec that did not run with the reason, and fails on one without.
func explain(t *testing.T, report ginkgo.Report) {
	node := 0
	for _, spec := range report.SpecReports {
		name, why := spec.FullText(), spec.Failure.Message
		switch {
		case spec.State.Is(types.SpecStatePassed) || spec.LeafNodeType != types.NodeTypeIt:
		case strings.Contains(name, nodeService):
			node++
		case spec.State.Is(types.SpecStatePending):
			t.Logf("not run: %s: pending in the suite itself", name)
		case skips[why] != "":
			t.Logf("not run: %s: %s (%s)", name, why, skips[why])
		default:
			t.Errorf("%s: %s, %q has no reason here", name, spec.State, why)
		}
	}
	t.Logf("not run: %d specs of the %s, which pillar node runs", node, nodeService)
}

// TestSanity runs the CSI community's own suite against the controller and identity
// services.
func TestSanity(t *testing.T) {
	b := newBench(t)
	dir, err := os.MkdirTemp("", "csi") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cfg := csiserve.Config{
		Address: filepath.Join(dir, "s"), Name: v1alpha1.DriverName, Version: "test", Capabilities: pluginCapabilities(),
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- csiserve.Run(ctx, cfg, zap.NewNop(), func(r grpc.ServiceRegistrar) {
			csi.RegisterControllerServer(r, kubernetesNames{b.Server})
			csi.RegisterNodeServer(r, nameOnly{node: b.name + "w1"})
		})
	}()
	suite := sanity.NewTestConfig()
	suite.Address = "unix://" + cfg.Address
	suite.TargetPath, suite.StagingPath = filepath.Join(dir, "t"), filepath.Join(dir, "g")
	suite.TestVolumeSize = 1 << 30
	suite.TestVolumeParameters = map[string]string{v1alpha1.StorageClassKey: b.name}
	sanity.GinkgoTest(&suite)
	gomega.RegisterFailHandler(ginkgo.Fail)
	suiteConfig, report := ginkgo.GinkgoConfiguration()
	report.NoColor, report.Succinct = true, true
	suiteConfig.SkipStrings = []string{nodeService}
	ginkgo.ReportAfterSuite("skipped specs", func(r ginkgo.Report) { explain(t, r) })
	ginkgo.RunSpecs(t, "CSI controller", suiteConfig, report)
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
