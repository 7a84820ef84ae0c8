package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// stateDir is what a cluster's folder in the lab's HostDir is called.
const stateDir = "cluster"

// ExecKubectl makes this process kubectl, as the administrator of a running lab's cluster: of
// the named lab, or of the only one that has a cluster. It only returns an error.
func ExecKubectl(ctx context.Context, name string, args []string) error {
	cache, repo, err := openCache()
	if err != nil {
		return err
	}
	cache.Offline = true // whoever made the cluster has built its programs
	tools, err := Tools(ctx, cache, repo)
	if errors.Is(err, artifacts.ErrMissing) {
		return fmt.Errorf("the cluster is another checkout's: %w", err)
	}
	if err != nil {
		return err
	}
	l, kubeconfig, err := findCluster(cache.Dir, name)
	if err != nil {
		return err
	}
	if err := l.JoinNetwork(); err != nil {
		return err
	}
	kubectl := filepath.Join(tools, "kubectl")
	err = syscall.Exec(kubectl, append([]string{"kubectl"}, args...), append(os.Environ(), "KUBECONFIG="+kubeconfig))
	return fmt.Errorf("start %s: %w", kubectl, err)
}

// findCluster answers the running lab to look at and its cluster's kubeconfig.
func findCluster(cache, name string) (l namespace.Lab, kubeconfig string, err error) {
	labs, err := namespace.Running(cache)
	if err != nil {
		return l, "", err
	}
	var have []namespace.Lab
	found := map[string]string{} // by lab
	for _, l := range labs {
		files, err := filepath.Glob(filepath.Join(l.Dir, "guests-*", "host", stateDir, token(userAdmin)+".kubeconfig"))
		if err != nil {
			return l, "", err
		}
		if len(files) > 1 {
			return l, "", fmt.Errorf("%s has several clusters: %q", l, files)
		}
		if len(files) == 1 {
			have = append(have, l)
			found[l.Name] = files[0]
		}
	}
	if len(have) == 0 {
		return l, "", errors.New("no lab runs a cluster, `make demo KEEP=1` leaves one")
	}
	l, err = namespace.Choose(have, name)
	return l, found[l.Name], err
}
