package nvmet

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/transport"
)

var update = flag.Bool("update", false, "write testdata/*.golden from what the code does now")

// traces are the operations, by the name of their golden. setup runs first and is not part
// of the trace.
var traces = map[string]struct {
	setup, act func(*testing.T, *Target)
}{
	"export":               {none, exporting()},
	"export_again":         {exporting(), exporting()},
	"export_open":          {none, exporting(open)},
	"export_open_again":    {exporting(open), exporting(open)},
	"export_disabled":      {none, exporting(disabled)},
	"export_second_volume": {exporting(), exporting(second)},
	"export_ipv6_in_capsule": {none, exporting(inCapsule(8192), func(e *transport.Export) {
		e.Portal = transport.Portal{Address: "::1"}
	})},
	"open_to_restricted": {exporting(open), exporting()},
	"restricted_to_open": {exporting(), exporting(open)},
	"host_added":         {exporting(), exporting(toBoth)},
	"host_removed":       {exporting(toBoth), exporting()},
	"host_replaced":      {exporting(), exporting(toOther)},
	"disable":            {exporting(), exporting(disabled)},
	"enable":             {exporting(disabled), exporting()},

	"allow":       {exporting(), allowing(host2)},
	"allow_again": {exporting(), allowing(host1)},
	"allow_open":  {exporting(open), allowing(host1)},

	"deny":          {exporting(toBoth), denying(host1)}, // the other is connected
	"deny_last":     {exporting(), denying(host1)},
	"deny_again":    {exporting(), denying(host2)},
	"deny_open":     {exporting(open), denying(host1)},
	"deny_disabled": {exporting(disabled), denying(host1)},

	"resize":          {exporting(), inTurn(resizing, resizing)},
	"resize_disabled": {exporting(disabled), resizing},

	"unexport":        {exporting(toBoth), unexporting},
	"unexport_again":  {inTurn(exporting(), unexporting), unexporting},
	"unexport_shared": {inTurn(exporting(), exporting(second)), unexporting},

	"restore":       {none, restoring},
	"restore_again": {restoring, restoring},
}

// inTurn does several things.
func inTurn(steps ...func(*testing.T, *Target)) func(*testing.T, *Target) {
	return func(t *testing.T, tgt *Target) {
		for _, step := range steps {
			step(t, tgt)
		}
	}
}

func allowing(host string) func(*testing.T, *Target) {
	return func(t *testing.T, tgt *Target) { must(t, tgt.Allow(t.Context(), volume, device, host)) }
}

func denying(host string) func(*testing.T, *Target) {
	return func(t *testing.T, tgt *Target) { must(t, tgt.Deny(t.Context(), volume, device, host, free)) }
}

func resizing(t *testing.T, tgt *Target)    { must(t, tgt.Resize(t.Context(), volume, device)) }
func unexporting(t *testing.T, tgt *Target) { must(t, tgt.Unexport(t.Context(), volume, device)) }

// restoring is what follows a reboot: all is prepared before the first link.
func restoring(t *testing.T, tgt *Target) {
	both := []transport.Export{export(nil), export(second)}
	for _, e := range both {
		must(t, tgt.Prepare(t.Context(), e, free))
	}
	for _, e := range both {
		_, err := tgt.Link(t.Context(), e)
		must(t, err)
	}
}

// What the kernel sees of each operation, in order: B-248, B-249, B-239, B-266, D-29.
func TestTarget_traces(t *testing.T) { testTraces(t, inMemory) }

// The kernel sees the same.
func TestKernel_traces(t *testing.T) { testTraces(t, onKernel) }

func testTraces(t *testing.T, system fixture) {
	for name, tc := range traces {
		t.Run(name, func(t *testing.T) {
			k, tgt := system(t)
			tc.setup(t, tgt)
			k.Trace()
			tc.act(t, tgt)
			golden(t, name, shorten(k.Trace()))
		})
	}
}

// golden compares text with testdata/name.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// shorten writes a trace with each subsystem's directory spelled out only when it is made.
func shorten(trace []string) string {
	var b strings.Builder
	for _, line := range trace {
		verb, rest, _ := strings.Cut(line, " ")
		if name, ok := strings.CutPrefix(rest, "nvmet/subsystems/"); ok && verb != "mkdir" || strings.Contains(name, "/namespaces") {
			if _, attr, ok := strings.Cut(name, "/"); ok {
				rest = ".../" + attr
			}
		}
		b.WriteString(verb + strings.Repeat(" ", 7-len(verb)) + rest + "\n")
	}
	return b.String()
}
