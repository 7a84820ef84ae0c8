package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// A full disk below the state directory is missed by a dry run. It is no reason not to start:
// what the marks allow needs no room, and that is every export of a restore.
func TestState_diskFull_kernel(t *testing.T) {
	hosttest.Need(t)
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, 0) })
	if err := os.WriteFile(filepath.Join(disk, "other"), []byte("has it all"), 0o600); err != nil {
		t.Fatal(err)
	}

	var r dryrun.Report
	dir := filepath.Join(disk, "state")
	dryState(&r, Config{StateDir: dir})
	if len(r.Missing) != 1 || !strings.Contains(r.Missing[0].Problem, "no space left") || !strings.Contains(r.Missing[0].Fix, "room") {
		t.Errorf("Missing = %+v, want room for the state directory", r.Missing)
	}
	st, err := openState(dir)
	if err != nil {
		t.Fatalf("openState on a full disk = %v", err)
	}
	defer st.close()
	if _, err := openState(dir); err == nil || !strings.Contains(err.Error(), "in use by another agent: stop it") {
		t.Errorf("second openState = %v, want a refusal", err)
	}
}
