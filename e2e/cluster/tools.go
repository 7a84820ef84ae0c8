package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
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
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl", "for people: make lab-shell"},
	{"csi-provisioner", "github.com/kubernetes-csi/external-provisioner/v6/cmd/csi-provisioner", "sidecar of the controller"},
	{"csi-attacher", "github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher", "sidecar of the controller"},
	{"csi-resizer", "github.com/kubernetes-csi/external-resizer/v2/cmd/csi-resizer", "sidecar of the controller"},
	{"etcd", "go.etcd.io/etcd/server/v3", "the API server's database"},
}

// Tools answers the folder with the programs of tools/go.mod and builds what is missing.
// The folder is keyed by go.mod, go.sum and the Go version. A second caller waits for the
// first; a killed build leaves no half-written program. say gets a line before each
// program and at least every 10 s while one builds.
func Tools(ctx context.Context, say func(string)) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	module := filepath.Join(root, "e2e", "cluster", "tools")
	key, err := toolsKey(module)
	if err != nil {
		return "", err
	}
	dir, err := cacheFolder("k8s-" + key)
	if err != nil {
		return "", err
	}
	if len(missing(dir)) == 0 {
		return dir, nil
	}
	unlock, err := lock(ctx, dir+".lock", say)
	if err != nil {
		return "", err
	}
	defer unlock()
	for _, p := range missing(dir) {
		if err := p.build(ctx, module, dir, say); err != nil {
			return "", err
		}
	}
	return dir, nil
}

func toolsKey(module string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH)
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("key of the cluster's programs: %w", err)
		}
		sum.Write(data)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

func missing(dir string) []program {
	var out []program
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(dir, p.name)); err != nil {
			out = append(out, p)
		}
	}
	return out
}

func (p program) build(ctx context.Context, module, dir string, say func(string)) error {
	done := tell(say, fmt.Sprintf("building %s %s (%s)", p.name, kubernetesVersionOf(p), p.why))
	defer done()
	tmp := filepath.Join(dir, "."+p.name)
	version := "-X k8s.io/component-base/version."
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags",
		"-s -w "+version+"gitVersion="+kubernetesVersion+" "+version+"gitMajor=1 "+version+"gitMinor=37",
		"-o", tmp, p.pkg)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", p.name, errors.Join(ctx.Err(), err), strings.TrimSpace(string(out)))
	}
	if err := os.Rename(tmp, filepath.Join(dir, p.name)); err != nil {
		return fmt.Errorf("build %s: %w", p.name, err)
	}
	return nil
}

func kubernetesVersionOf(p program) string {
	if strings.HasPrefix(p.pkg, "k8s.io/kubernetes/") {
		return kubernetesVersion
	}
	return "as pinned in e2e/cluster/tools/go.mod"
}
