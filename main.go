// Command pillar moves a logical volume from a storage node into a pod. It is one static
// binary; the first argument is the role it plays:
//
//	pillar controller   reconciles pillar's kinds, serves CSI Controller      one pod
//	pillar agent        makes volumes and exports them                        storage nodes
//	pillar node         connects, formats and mounts, serves CSI Node         every node
//	pillar modprobe     loads kernel modules for the two before they start    init container
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pillar-csi/pillar/roles/agent"
	"github.com/pillar-csi/pillar/roles/controller"
	"github.com/pillar-csi/pillar/roles/modprobe"
	"github.com/pillar-csi/pillar/roles/node"
	"github.com/pillar-csi/pillar/roles/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:          "pillar",
		Short:        "Block volumes for Kubernetes from the LVM and ZFS of your own machines",
		SilenceUsage: true, // an error of a running role is not a wrong flag
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(
		controller.Command(),
		agent.Command(),
		node.Command(),
		modprobe.Command(),
		version.Command(),
	)
	err := root.ExecuteContext(ctx) // cobra prints why
	var exit interface{ ExitCode() int }
	switch {
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	case err != nil:
		os.Exit(1)
	}
}
