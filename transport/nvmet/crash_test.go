package nvmet

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
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

// crashes are the operations that have more than one effect. repair is what the controller
// sends after the retry.
var crashes = map[string]struct {
	setup       func(*testing.T, *Target)
	act, repair func(*testing.T, *Target) error
}{
	"export":        {none, exports(), nothing},
	"host added":    {exporting(), exports(toBoth), nothing},
	"host replaced": {exporting(), exports(toOther), nothing},
	"allow": {exporting(), func(t *testing.T, tgt *Target) error {
		return tgt.Allow(t.Context(), volume, device, host2)
	}, nothing},
	"deny": {exporting(toBoth), func(t *testing.T, tgt *Target) error {
		return tgt.Deny(t.Context(), volume, device, host1, free)
	}, exports(toOther)},
	"unexport": {exporting(toBoth), func(t *testing.T, tgt *Target) error {
		return tgt.Unexport(t.Context(), volume, device)
	}, nothing},
}

// exports is exporting that answers the error.
func exports(changes ...func(*transport.Export)) func(*testing.T, *Target) error {
	return func(t *testing.T, tgt *Target) error {
		_, err := tgt.Export(t.Context(), changed(changes...), free)
		return err
	}
}

func nothing(*testing.T, *Target) error { return nil }

// N-12, B-240, B-241: each operation is stopped before every effect it has. The repeated
// call leads to the very state the undisturbed one leads to, and at no moment may a host
// reach a subsystem that is not complete, or one that it is not listed in.
func TestTarget_crashes(t *testing.T) { testCrashes(t, inMemory) }

func TestKernel_crashes(t *testing.T) { testCrashes(t, onKernel) }

func testCrashes(t *testing.T, system fixture) {
	for name, tc := range crashes {
		t.Run(name, func(t *testing.T) {
			k, tgt := system(t)
			tc.setup(t, tgt)
			must(t, tc.act(t, tgt))
			want := content(t, k, "nvmet")
			for n := 0; ; n++ {
				must(t, k.Clear())
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
				if diff := cmp.Diff(want, content(t, k, "nvmet")); diff != "" {
					t.Fatalf("after a crash before effect %d (-undisturbed +repeated):\n%s", n, diff)
				}
			}
		})
	}
}

// complete fails if a port serves a subsystem that lacks its identity, device or ACL.
func complete(t *testing.T, k configfs.FS, n int) {
	t.Helper()
	if _, atAll := reachable(t, k); !atAll {
		return
	}
	all, id := content(t, k, "nvmet"), derive(nqn)
	for attr, want := range map[string]string{
		"attr_serial": id.Serial, "attr_allow_any_host": "0", "namespaces/1/enable": "1",
		"namespaces/1/device_uuid": id.UUID, "namespaces/1/device_nguid": id.NGUID, "namespaces/1/device_path": device,
	} {
		if got := strings.TrimSpace(all[subDir+"/"+attr]); got != want {
			t.Errorf("before effect %d a host could meet %s = %q, want %q", n, attr, got, want)
		}
	}
}
