package durable_test

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage/host/durable"
)

// B-155, U-12, U-25: injective, inside the directory, case kept, short enough.
func TestName(t *testing.T) {
	tests := map[string]string{
		"vg0/pvc-0b8c":      "vg0%2Fpvc-0b8c",
		"VG0/PVC-0B8C":      "VG0%2FPVC-0B8C",
		"tank/a:b":          "tank%2Fa%3Ab",
		"a%2Fb":             "a%252Fb",
		"../etc":            "%2E.%2Fetc",
		".tmp":              "%2Etmp",
		"":                  "",
		"line\nend \x00 é~": "line%0Aend%20%00%20%C3%A9%7E",
	}
	for id, want := range tests {
		if got := durable.Name(id); got != want {
			t.Errorf("Name(%q) = %q, want %q", id, got, want)
		}
	}
	long := strings.Repeat("v", 250)
	seen := map[string]string{}
	for _, id := range []string{"tank/" + long, "tank/" + long + "w", "tank/" + long + "x", strings.Repeat("é", 90)} {
		name := durable.Name(id)
		if len("."+name+".json.4294967295.tmp") > 255 || strings.Contains(name, "/") {
			t.Errorf("Name(%q) = %q, which is no usable file name", id, name)
		}
		if other, ok := seen[name]; ok {
			t.Errorf("Name(%q) = Name(%q)", id, other)
		}
		seen[name] = id
	}
}

// U-12: what is not shortened can be read back, so no two IDs share a name; what is, says so
// and holds a hash of all of it.
func FuzzName(f *testing.F) {
	for _, id := range []string{"vg0/pvc-1", "a%2Fb", "..", ".x.tmp", "", "é~\x00", strings.Repeat("%", 70)} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		name := durable.Name(id)
		if strings.ContainsAny(name, "/\x00") || strings.HasPrefix(name, ".") || len(name) > 200 {
			t.Errorf("Name(%q) = %q, which is no usable file name", id, name)
		}
		if strings.Contains(name, "~") {
			if sum := fmt.Sprintf("~%x", sha256.Sum256([]byte(id))); !strings.HasSuffix(name, sum) {
				t.Errorf("Name(%q) = %q, want it to end in %s", id, name, sum)
			}
			return
		}
		if back, err := url.PathUnescape(name); err != nil || back != id {
			t.Errorf("Name(%q) = %q, which reads back as %q, %v", id, name, back, err)
		}
	})
}
