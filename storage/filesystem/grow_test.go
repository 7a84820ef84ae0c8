package filesystem

import (
	"errors"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

func TestTools_Grow(t *testing.T) {
	tests := map[string]struct {
		fstype string
		steps  []hosttest.Step
		want   error
	}{
		"ext4":       {"ext4", []hosttest.Step{{Argv: []string{"resize2fs", "/dev/nvme0n1"}}}, nil},
		"xfs":        {"xfs", []hosttest.Step{{Argv: []string{"xfs_growfs", "/staging"}}}, nil},
		"other type": {"btrfs", nil, storage.ErrInvalid},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Tools{Run: hosttest.Script(t, tt.steps...)}.Grow(t.Context(), tt.fstype, "/dev/nvme0n1", "/staging")
			if !errors.Is(err, tt.want) {
				t.Errorf("Grow(%s) = %v, want %v", tt.fstype, err, tt.want)
			}
		})
	}
}

func TestTools_Grow_fails(t *testing.T) {
	step := hosttest.Step{Argv: []string{"resize2fs", "/dev/nvme0n1"}, Exit: 1, Stderr: "Read-only file system"}
	err := Tools{Run: hosttest.Script(t, step)}.Grow(t.Context(), "ext4", "/dev/nvme0n1", "/staging")
	var exit *host.ExitError
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "Read-only file system") {
		t.Errorf("Grow = %v, want the tool's output", err)
	}
}
