// Package modprobe is the init container of agent and node: it loads kernel modules from
// the host's /lib/modules and says what happened to each.
//
//	/lib/modules/<release>/    the host's, mounted read-only into the pod
//	/sys/module/<name>/        there when a module is loaded
//
// It is best effort. A module that cannot be loaded shows up later, where it is missed, as
// a protocol the agent does not offer or a stage error; it never keeps a pod from starting.
package modprobe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pillar-csi/pillar/storage/host"
)

// timeout is how long one module may take. Loading takes milliseconds; a module whose
// initialisation hangs must not hold back the pod.
const timeout = 30 * time.Second

// Command is `pillar modprobe MODULE...`.
func Command() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "modprobe MODULE...",
		Short: "Load kernel modules, best effort (init container)",
		Run: func(cmd *cobra.Command, modules []string) {
			load(cmd.Context(), cmd.OutOrStdout(), host.Exec{}, host.Root(""), dir, modules)
		},
	}
	cmd.Flags().StringVarP(&dir, "dirname", "d", "/", "directory that holds lib/modules, as for modprobe(8)")
	return cmd
}

// load tries every module in order and writes one line for each.
func load(ctx context.Context, w io.Writer, run host.Runner, root host.Root, dir string, modules []string) {
	for _, m := range modules {
		fmt.Fprintf(w, "%s: %s\n", m, loadOne(ctx, run, root, dir, m))
	}
}

// loadOne answers what happened, in words. modprobe(8) also succeeds, without effect, for
// code built into the kernel.
func loadOne(ctx context.Context, run host.Runner, root host.Root, dir, module string) string {
	if _, err := os.Stat(root.Path("sys/module", strings.ReplaceAll(module, "-", "_"))); err == nil {
		return "already there"
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := run.Run(ctx, "modprobe", "-d", dir, module)
	var exit *host.ExitError
	switch {
	case err == nil:
		return "loaded"
	case errors.As(err, &exit):
		return "not loaded: " + oneLine(exit.Stderr)
	}
	return "not loaded: " + oneLine(err.Error())
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
