package nvmet

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/*.golden from what the code does now")

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
