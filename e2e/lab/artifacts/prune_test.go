package artifacts

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const day = 24 * time.Hour

func TestCache_Prune(t *testing.T) {
	const a, b, c = "thing-00000000000a", "thing-00000000000b", "thing-00000000000c"
	tests := map[string]struct {
		used map[string]time.Duration // entry -> since its last use
		want []string
	}{
		"nothing there":           {nil, nil},
		"all used this week":      {map[string]time.Duration{a: 0, b: 6 * day}, []string{a, b}},
		"old ones go":             {map[string]time.Duration{a: 0, b: 8 * day, c: 9 * day}, []string{a}},
		"the last used one stays": {map[string]time.Duration{a: 90 * day, b: 80 * day}, []string{b}},
		"other kinds stay":        {map[string]time.Duration{a: 0, "thing-else-00000000000a": 9 * day, "thing-else-00000000000b": 8 * day, "debs": 9 * day}, []string{"debs", a, "thing-else-00000000000a", "thing-else-00000000000b"}},
		"killed builds go":        {map[string]time.Duration{".tmp-thing-1": 8 * day, ".tmp-thing-2": day}, []string{".tmp-thing-2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cache := &Cache{Dir: t.TempDir()}
			for entry, ago := range test.used {
				age(t, filepath.Join(cache.Dir, entry), ago)
			}
			if err := cache.Prune("thing"); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(cache.Dir)
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			for _, e := range entries {
				left = append(left, e.Name())
			}
			if diff := cmp.Diff(test.want, left); diff != "" {
				t.Errorf("entries left (-want +got):\n%s", diff)
			}
		})
	}
}

// age makes an entry with a file in it that was last used so long ago.
func age(t *testing.T, dir string, ago time.Duration) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-ago)
	if err := os.Chtimes(dir, then, then); err != nil {
		t.Fatal(err)
	}
}

// TestCache_get_use goes back to an old entry: its use keeps it, the other one goes.
func TestCache_get_use(t *testing.T) {
	cache := &Cache{Dir: t.TempDir()}
	entry := func(key string) string {
		dir, err := cache.get(t.Context(), artifact{name: "thing", key: []string{key},
			make: func(context.Context, *builder) error { return nil }})
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	one, two := entry("1"), entry("2")
	age(t, one, 9*day)
	age(t, two, 8*day)
	entry("1")
	if err := cache.Prune("thing"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(one); err != nil {
		t.Errorf("the entry in use: %v, want it to stay", err)
	}
	if _, err := os.Stat(two); !os.IsNotExist(err) {
		t.Errorf("the unused entry: %v, want it removed", err)
	}
}
