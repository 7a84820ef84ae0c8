package nvmf

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/transport"
)

// sized is a connected subsystem whose device has so many sectors.
func sized(sectors string) string {
	return multipathOn + "class/nvme-subsystem/nvme-subsys0/nvme0n1/size " + sectors + "\n"
}

// TestHost_Resize plays the sizes a device can be met in; each test's clock is fake.
func TestHost_Resize(t *testing.T) {
	tests := map[string]struct {
		before, later string // later comes after 5 s
		atLeast       int64
		want          int64
		scanned       bool
		err           error
	}{
		"as large already":     {sized("16"), sized("16"), 8192, 8192, false, nil},
		"larger already":       {sized("24"), sized("24"), 8192, 12288, false, nil},
		"grows after a while":  {sized("8"), sized("16"), 8192, 8192, true, nil},
		"no size asked for":    {sized("8"), sized("8"), 0, 4096, true, nil},
		"stays as it is":       {sized("8"), sized("8"), 8192, 0, true, context.DeadlineExceeded},
		"not connected":        {"", "", 8192, 0, false, transport.ErrNotFound},
		"goes away meanwhile":  {sized("8"), "", 8192, 0, true, transport.ErrNotFound},
		"size cannot be read":  {multipathOn, multipathOn, 8192, 0, false, fs.ErrNotExist},
		"connecting meanwhile": {strings.Replace(sized("8"), "state live", "state connecting", 1), sized("16"), 8192, 8192, true, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "sys/class/nvme/nvme0")
			if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/rescan_controller", nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				m := &machine{}
				m.set(tc.before)
				h := m.host(nil)
				h.root = host.Root(root)
				time.AfterFunc(5*time.Second, func() { m.set(tc.later) })
				got, err := h.Resize(t.Context(), testNQN, tc.atLeast)
				if got != tc.want || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
					t.Errorf("Resize(%d) = %d, %v, want %d, %v", tc.atLeast, got, err, tc.want, tc.err)
				}
				time.Sleep(10 * time.Second)
			})
			if wrote, _ := os.ReadFile(dir + "/rescan_controller"); (string(wrote) == "1") != tc.scanned {
				t.Errorf("rescan_controller got %q, want it scanned %v", wrote, tc.scanned)
			}
		})
	}
}
