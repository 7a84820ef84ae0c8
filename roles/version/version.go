// Package version is `pillar version`: which build this is.
package version

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/pillar-csi/pillar/roles/telemetry"
)

// info is what the command prints.
type info struct {
	Version   string `json:"version"`
	Commit    string `json:"commit,omitempty"` // empty when built outside a checkout
	GoVersion string `json:"goVersion"`
}

// Command is `pillar version`.
func Command() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, commit and Go version",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return write(cmd.OutOrStdout(), output, current())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// current reads what the linker and the Go tool recorded in this binary.
func current() info {
	v := info{Version: telemetry.Version, GoVersion: runtime.Version()}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range build.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}

func write(w io.Writer, output string, v info) error {
	switch output {
	case "text":
		_, err := fmt.Fprintf(w, "pillar %s\ncommit %s\n%s\n", v.Version, cmp.Or(v.Commit, "unknown"), v.GoVersion)
		return err
	case "json":
		return json.NewEncoder(w).Encode(v)
	}
	return fmt.Errorf("output %q: must be text or json", output)
}
