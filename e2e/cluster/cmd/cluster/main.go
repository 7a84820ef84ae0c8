// Command cluster makes what a cluster of the lab needs: Kubernetes, etcd, CSI sidecars and
// container images. `make test` and `make demo` run it before they enter the lab, from
// where nothing can be downloaded.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pillar-csi/pillar/e2e/cluster"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "build" {
		fmt.Fprintln(os.Stderr, "usage: cluster build")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cluster.Build(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}
