// Command cluster makes what a cluster of the lab needs: Kubernetes, etcd, CSI sidecars and
// container images. `make test` and `make demo` run it before they enter the lab, from
// where nothing can be downloaded.
//
//	cluster build           make it, or find it in the cache
//	cluster assets          print the folder of etcd and kube-apiserver
//	cluster kubectl ARGS    kubectl in the lab that runs a cluster; LAB=NAME if several do
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pillar-csi/pillar/e2e/cluster"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

func main() {
	verb := ""
	if len(os.Args) == 2 || len(os.Args) > 2 && os.Args[1] == "kubectl" {
		verb = os.Args[1]
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch verb {
	case "build":
		err = cluster.Build(ctx)
	case "assets":
		err = printAssets(ctx)
	case "kubectl":
		err = cluster.ExecKubectl(ctx, os.Getenv(namespace.ChoiceVar), os.Args[2:])
	default:
		fmt.Fprintln(os.Stderr, "usage: cluster build | assets | kubectl ARGS...")
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

// printAssets prints the folder of etcd and kube-apiserver, for tests that need no guest.
func printAssets(ctx context.Context) error {
	dir, err := cluster.Programs(ctx)
	if err == nil {
		fmt.Println(dir)
	}
	return err
}
