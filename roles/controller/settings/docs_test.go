package settings

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// docs are the rows of the table below a heading of docs/parameters.md: cells by the first.
func docs(t *testing.T, heading string) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("../../../docs/parameters.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(raw), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("docs/parameters.md has no heading %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n#")
	rows := map[string][]string{}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) > 1 && strings.HasPrefix(line, "| ") {
			rows[strings.Trim(cells[0], "`")] = cells[1:]
		}
	}
	delete(rows, "parameter")
	delete(rows, "annotation")
	delete(rows, "key")
	delete(rows, "volume")
	delete(rows, "options")
	return rows
}

// short are keys without the prefix.
func short(keys []string) []string {
	var names []string
	for _, key := range keys {
		names = append(names, strings.TrimPrefix(key, v1alpha1.KeyPrefix))
	}
	slices.Sort(names)
	return names
}

func TestDocs_keys(t *testing.T) {
	if diff := cmp.Diff(short(ownParameters), sorted(docs(t, "## StorageClass parameters"))); diff != "" {
		t.Errorf("docs/parameters.md, parameters (-code +docs):\n%s", diff)
	}
	if diff := cmp.Diff(short(ownAnnotations), sorted(docs(t, "## Annotations of a claim"))); diff != "" {
		t.Errorf("docs/parameters.md, annotations (-code +docs):\n%s", diff)
	}
}

func TestDocs_documents(t *testing.T) {
	want := map[string]string{}
	add := func(prefix string, rules map[string]rule) {
		for name, r := range rules {
			want[prefix+name] = r.wants()
		}
	}
	add("", filesystemFields)
	for _, members := range []map[string]member{backendMembers, protocolMembers} {
		for name, m := range members {
			add(name+".", m.tunable)
		}
	}
	got := map[string]string{}
	for key, cells := range docs(t, "## Documents") {
		got[key] = cells[0]
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("docs/parameters.md, documents (-code +docs):\n%s", diff)
	}
}

// code is a list of words as the documentation shows it.
func code(words []string) string { return "`" + strings.Join(words, "` `") + "`" }

func TestDocs_lists(t *testing.T) {
	want := map[string][]string{}
	for volume, properties := range ownedByDriver {
		want[volume] = []string{code(properties)}
	}
	if diff := cmp.Diff(want, docs(t, "### ZFS properties that pillar sets")); diff != "" {
		t.Errorf("docs/parameters.md, ZFS properties (-code +docs):\n%s", diff)
	}
	var fixed []string
	for _, key := range sorted(fixedNFS) {
		fixed = append(fixed, key+"="+fixedNFS[key])
	}
	refused := append([]string{"mount*"}, refusedNFS...)
	slices.Sort(refused)
	want = map[string][]string{"only so": {code(fixed)}, "refused": {code(refused)}}
	if diff := cmp.Diff(want, docs(t, "### NFS")); diff != "" {
		t.Errorf("docs/parameters.md, NFS (-code +docs):\n%s", diff)
	}
	if raw, err := os.ReadFile("../../../docs/parameters.md"); err != nil || !strings.Contains(string(raw), code(bindOptions)) {
		t.Errorf("docs/parameters.md lacks %s (%v)", code(bindOptions), err)
	}
}
