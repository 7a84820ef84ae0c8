package filesystem

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// section is the first table below a heading of docs/parameters.md: first cell to second.
func section(t *testing.T, heading string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/parameters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(raw), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/parameters.md has no heading %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n#")
	rows := map[string]string{}
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, " | "); len(cells) == 2 && strings.HasPrefix(line, "| `") {
			rows[strings.TrimPrefix(cells[0], "| ")] = strings.TrimSuffix(cells[1], " |\n")
		}
	}
	return rows
}

// code is a list of words as the documentation shows it.
func code(words []string) string { return "`" + strings.Join(words, "` `") + "`" }

func TestDocs_mkfs(t *testing.T) {
	values := map[*regexp.Regexp]string{
		number: "number", word: "word", words: "words", onError: "`continue` or `remount-ro`", uuid: "UUID, `clear`, `random` or `time`",
	}
	for fstype, flags := range allowed {
		want := map[string]string{}
		for name, f := range flags {
			switch {
			case f.value == nil:
				want[code([]string{name})] = "none"
			case f.keys != nil:
				want[code([]string{name})] = code(f.keys)
			case f.max > 0:
				want[code([]string{name})] = fmt.Sprintf("at most %d bytes", f.max)
			default:
				want[code([]string{name})] = values[f.value]
			}
		}
		if diff := cmp.Diff(want, section(t, "### "+fstype)); diff != "" {
			t.Errorf("docs/parameters.md, mkfs options of %s (-code +docs):\n%s", fstype, diff)
		}
	}
}

func TestDocs_mountOptions(t *testing.T) {
	byReason := map[string][]string{}
	for _, option := range slices.Sorted(maps.Keys(refusedMountOptions)) {
		byReason[refusedMountOptions[option]] = append(byReason[refusedMountOptions[option]], option)
	}
	byReason[fstabWord] = append(byReason[fstabWord], "x-*")
	want := map[string]string{}
	for reason, options := range byReason {
		want[code(options)] = reason
	}
	if diff := cmp.Diff(want, section(t, "## Mount options")); diff != "" {
		t.Errorf("docs/parameters.md, mount options (-code +docs):\n%s", diff)
	}
}
