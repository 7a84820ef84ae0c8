package nvmet

import (
	"errors"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

var errCrash = errors.New("crash")

// crashing stops everything from the n-th effect on, as a killed process does.
func crashing(k *configfstest.Kernel, n int) {
	k.OnEffect = func(string) error {
		if n--; n < 0 {
			return errCrash
		}
		return nil
	}
}

// content is what a configfs holds, for comparison.
func content(t *testing.T, k *configfstest.Kernel, dir string, into map[string]string) map[string]string {
	names, err := k.ReadDir(dir)
	must(t, err)
	for _, name := range names {
		full := dir + "/" + name
		if isDir, _ := k.IsDir(full); isDir {
			into[full] = "dir"
			content(t, k, full, into)
			continue
		}
		value, err := k.ReadFile(full)
		if errors.Is(err, fs.ErrPermission) { // only takes writes, holds nothing
			continue
		}
		must(t, err)
		into[full] = string(value)
	}
	return into
}

// TestTarget_crashes kills each operation before every effect it has. The repeated call
// must lead to the very state the undisturbed one leads to, and at no moment may a host
// reach a subsystem that is not complete.
func TestTarget_crashes(t *testing.T) {
	both := export(func(e *transport.Export) { e.Initiators = []string{host1, host2} })
	tests := map[string]struct {
		setup  func(*testing.T, *Target)
		act    func(*testing.T, *Target) error
		repair func(*testing.T, *Target) error // what the controller sends next
	}{
		"export": {none, func(t *testing.T, tgt *Target) error {
			_, err := tgt.Export(t.Context(), export(nil), free)
			return err
		}, noRepair},
		"unexport": {exporting(both), func(t *testing.T, tgt *Target) error {
			return tgt.Unexport(t.Context(), volume, device)
		}, noRepair},
		"deny": {exporting(both), func(t *testing.T, tgt *Target) error {
			return tgt.Deny(t.Context(), volume, device, host1, free)
		}, func(t *testing.T, tgt *Target) error {
			_, err := tgt.Export(t.Context(), export(func(e *transport.Export) { e.Initiators = []string{host2} }), free)
			return err
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k, tgt := fixture(t)
			tc.setup(t, tgt)
			must(t, tc.act(t, tgt))
			want := content(t, k, "nvmet", map[string]string{})
			for n := 0; ; n++ {
				k, tgt := fixture(t)
				tc.setup(t, tgt)
				crashing(k, n)
				err := tc.act(t, tgt)
				k.OnEffect = nil
				complete(t, k, n)
				if err == nil {
					break
				}
				if !errors.Is(err, errCrash) {
					t.Fatalf("before effect %d: %v", n, err)
				}
				must(t, tc.act(t, tgt))
				must(t, tc.repair(t, tgt))
				if diff := cmp.Diff(want, content(t, k, "nvmet", map[string]string{})); diff != "" {
					t.Fatalf("after a crash before effect %d (-undisturbed +repeated):\n%s", n, diff)
				}
			}
		})
	}
}

func noRepair(*testing.T, *Target) error { return nil }

// complete fails if a port serves a subsystem that lacks its identity, device or ACL.
func complete(t *testing.T, k *configfstest.Kernel, n int) {
	t.Helper()
	all := content(t, k, "nvmet", map[string]string{})
	linked := slices.ContainsFunc(slices.Collect(maps.Keys(all)), func(name string) bool {
		return strings.HasPrefix(name, "nvmet/ports/") && strings.HasSuffix(name, "/subsystems/"+nqn)
	})
	if !linked {
		return
	}
	id := derive(nqn)
	for attr, want := range map[string]string{
		"attr_serial": id.Serial, "attr_allow_any_host": "0", "namespaces/1/enable": "1",
		"namespaces/1/device_uuid": id.UUID, "namespaces/1/device_nguid": id.NGUID, "namespaces/1/device_path": device,
	} {
		if got := strings.TrimSpace(all[subDir+"/"+attr]); got != want {
			t.Errorf("before effect %d a host could meet %s = %q, want %q", n, attr, got, want)
		}
	}
}
