package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// kubernetesVersion is the version tools/go.mod requires of k8s.io/kubernetes; the
// programs report it.
const kubernetesVersion = "v1.37.2"

// program is one command of the tools module.
type program struct {
	name, pkg, why string
}

// programs in the order that builds them fastest: kube-apiserver compiles what the others
// share, the rest is little more than links. Measured, 2 cores: 313 s for the first, 195 s
// for all others together.
var programs = []program{
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", "the API server; its dependencies are most of Kubernetes, about 6 minutes"},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", "daemon sets, deployments, attach and detach; about 100 s"},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", "places pods"},
	{"kubelet", "k8s.io/kubernetes/cmd/kubelet", "runs pods in the guests"},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl", "for people: cluster kubectl"},
	{"csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", "sidecar of the controller"},
	{"csi-attacher", "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher", "sidecar of the controller"},
	{"csi-resizer", "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer", "sidecar of the controller"},
	{"etcd", "go.etcd.io/etcd/server/v3", "the API server's database"},
}

// Tools answers the folder with the programs of tools/go.mod and builds them first if they
// are not in the cache; repo is the root of the checkout. Its key is go.mod, go.sum and the Go version.
func Tools(ctx context.Context, cache *artifacts.Cache, repo string) (string, error) {
	module := filepath.Join(repo, "e2e", "cluster", "tools")
	key := []string{runtime.Version(), runtime.GOARCH, kubernetesVersion}
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("key of the cluster's programs: %w", err)
		}
		key = append(key, string(data))
	}
	return cache.Get(ctx, artifacts.Artifact{
		Name: "k8s", Why: "Kubernetes, etcd and CSI sidecars from Go modules, about 10 minutes the first time", Key: key,
		Make: func(ctx context.Context, dir string, step func(string, ...any)) error {
			for i, p := range programs {
				step("building %s (%d of %d): %s", p.name, i+1, len(programs), p.why)
				if err := p.build(ctx, module, dir); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

func (p program) build(ctx context.Context, module, dir string) error {
	version := "-X k8s.io/component-base/version."
	return goBuild(ctx, module, filepath.Join(dir, p.name), p.pkg,
		"-s -w "+version+"gitVersion="+kubernetesVersion+" "+version+"gitMajor=1 "+version+"gitMinor=37")
}

// goBuild builds a static program of the Go module in dir.
func goBuild(ctx context.Context, dir, out, pkg, ldflags string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", ldflags, "-o", out, pkg)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, errors.Join(ctx.Err(), err), strings.TrimSpace(string(said)))
	}
	return nil
}
