package nvmet

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

// A subsystem that is built anew while a host stays is back before that host may connect
// again: told that it is unknown, the host would not come back (P-13).
func TestTarget_Deny_quiet(t *testing.T) {
	for name, c := range map[string]struct {
		export func(*testing.T, *Target)
		want   []string
	}{
		"another host stays": {exporting(toBoth), []string{"quiet 127.0.0.1:4420, linked", "loud, linked"}},
		"none stays":         {exporting(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			var tgt *Target
			var told []string
			note := func(what string) {
				ports, err := tgt.linkedPorts(nqn)
				must(t, err)
				if len(ports) > 0 {
					what += ", linked"
				}
				told = append(told, what)
			}
			tgt = New(configfstest.New().Dir(), Config{IdentityDir: t.TempDir(), Quiet: func(at netip.AddrPort) (func() error, error) {
				note("quiet " + at.String())
				return func() error { note("loud"); return nil }, nil
			}})
			c.export(t, tgt)
			denying(host1)(t, tgt)
			if diff := cmp.Diff(c.want, told); diff != "" {
				t.Errorf("Deny (-want +got):\n%s", diff)
			}
		})
	}
}
