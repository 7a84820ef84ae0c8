package nvmet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

// Hosts remember these values: a difference here loses every volume in the field. They
// are written down, not updated.
func TestDerive_frozen(t *testing.T) {
	volumes := []string{
		"vg0/pvc-0b8c", "tank/pvc-0b8c", "vg0/pvc-6d0f2c4e-9a51-4f0c-8a57-0d3f4c1b2a99", "a/b.c", "vg0/demo-data",
		"data/postgres_0", "VG0/pvc-0b8c", "vg0/x", "pool-1/vol+1", "vg0/" + strings.Repeat("n", 127),
	}
	var b strings.Builder
	for _, v := range volumes {
		nqn, err := NQN(v)
		if err != nil {
			t.Fatal(err)
		}
		id := derive(nqn)
		fmt.Fprintf(&b, "%s\n  %s\n  uuid   %s\n  nguid  %s\n  serial %s\n", v, nqn, id.UUID, id.NGUID, id.Serial)
	}
	want, err := os.ReadFile("testdata/identity.golden")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("identities changed (-want +got):\n%s", diff)
	}
}

func TestDerive_form(t *testing.T) {
	id := derive("nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1")
	if !isUUID(id.UUID) || id.UUID[14] != '8' || !strings.ContainsRune("89ab", rune(id.UUID[19])) {
		t.Errorf("derive: uuid %s is not of version 8", id.UUID)
	}
	if !isUUID(id.NGUID) || len(id.Serial) != 20 || id.NGUID == id.UUID {
		t.Errorf("derive = %+v, want an nguid of its own and 20 characters of serial", id)
	}
}

func TestTarget_pinned(t *testing.T) {
	id := derive("nqn.2026-01.com.example:a")
	record := `{"version":1,"volume":"vg0/a","uuid":"` + id.UUID + `","nguid":"` + id.NGUID + `","serial":"` + id.Serial + `"}`
	tests := map[string]struct {
		content string
		want    *Identity
		ok      bool
	}{
		"none":           {"", nil, true},
		"sound":          {record, &id, true},
		"empty":          {" ", nil, false},
		"cut":            {record[:40], nil, false},
		"another volume": {strings.Replace(record, "vg0/a", "vg0/b", 1), nil, false},
		"another form":   {strings.Replace(record, `"version":1`, `"version":2`, 1), nil, false},
		"a key twice":    {strings.Replace(record, `"serial"`, `"uuid":"`+id.NGUID+`","serial"`, 1), nil, false},
		"an unknown key": {strings.Replace(record, `"serial"`, `"eui64":"1","serial"`, 1), nil, false},
		"text behind":    {record + "{}", nil, false},
		"zero uuid":      {strings.Replace(record, id.UUID, "00000000-0000-0000-0000-000000000000", 1), nil, false},
		"zero nguid":     {strings.Replace(record, id.NGUID, "00000000-0000-0000-0000-000000000000", 1), nil, false},
		"no uuid":        {strings.Replace(record, id.UUID, "", 1), nil, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			tgt := New(configfstest.New().Dir(), Config{IdentityDir: t.TempDir()})
			if tc.content != "" {
				path := filepath.Join(tgt.cfg.IdentityDir, "vg0%2Fa.json")
				if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := tgt.pinned("vg0/a")
			if diff := cmp.Diff(tc.want, got); diff != "" || (err == nil) != tc.ok {
				t.Errorf("pinned(vg0/a) = %v, %v, want %v, ok %v", got, err, tc.want, tc.ok)
			}
		})
	}
}

func TestNQN(t *testing.T) {
	tests := map[string]struct {
		volume, want string
	}{
		"plain":          {"vg0/pvc-1", "nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1"},
		"dots":           {"a/b.c", "nqn.2026-01.com.bhyoo.pillar-csi:a.b.c"},
		"longest":        {"v/" + strings.Repeat("n", 188), "nqn.2026-01.com.bhyoo.pillar-csi:v." + strings.Repeat("n", 188)},
		"too long":       {"v/" + strings.Repeat("n", 189), ""},
		"empty":          {"", ""},
		"with a blank":   {"vg0/a b", ""},
		"with a newline": {"vg0/a\n", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := NQN(tc.volume)
			if got != tc.want || (err == nil) != (tc.want != "") {
				t.Errorf("NQN(%q) = %q, %v, want %q", tc.volume, got, err, tc.want)
			}
		})
	}
}
