package fencing

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMark_roundTrip(t *testing.T) {
	for _, want := range someMarks()[1:] {
		data, err := encodeMark(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseMark(data, volume)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("parseMark(%s) = %v (-want +got):\n%s", data, err, diff)
		}
	}
}

// N-6, B-159: truncated, empty, swapped and foreign mark files fail every operation and
// stay as they are, until a human moves them away (docs/operations.md).
func TestStore_badMark(t *testing.T) {
	good, err := encodeMark(live("a", 2))
	if err != nil {
		t.Fatal(err)
	}
	replace := func(old, by string) string { return strings.Replace(string(good), old, by, 1) }
	tests := map[string]string{
		"empty":               "",
		"zero bytes":          "\x00\x00\x00\x00",
		"truncated":           string(good[:len(good)/2]),
		"followed":            string(good) + "{}",
		"null":                "null",
		"another volume":      replace("vg0/pvc-1", "vg0/pvc-2"),
		"another schema":      replace(`"schemaVersion": 1`, `"schemaVersion": 2`),
		"no schema":           replace(`"schemaVersion": 1,`, ``),
		"no owner":            replace(`"ownerUID": "a"`, `"ownerUID": ""`),
		"no generation":       replace(`"generation": 2`, `"generation": 0`),
		"generation as text":  replace(`"generation": 2`, `"generation": "2"`),
		"two generations":     replace(`"generation": 2`, `"generation": 2, "generation": 1`),
		"a generation, twice": replace(`"generation": 2`, `"generation": 2, "Generation": 1`),
		"another spelling":    replace(`"generation"`, `"GENERATION"`),
		"unknown end":         replace(`"generation": 2`, `"generation": 2, "ended": "paused"`),
		"unknown origin":      replace(`"generation": 2`, `"generation": 2, "origin": "found"`),
		"unknown field":       replace(`"generation": 2`, `"generation": 2, "preserve": true`),
		"owner retired":       replace(`"generation": 2`, `"generation": 2, "retired": [{"uid": "a", "ended": "deleted"}]`),
		"retired twice":       replace(`"generation": 2`, `"generation": 2, "retired": [{"uid": "o", "ended": "deleted"}, {"uid": "o", "ended": "deleted"}]`),
		"retired but not how": replace(`"generation": 2`, `"generation": 2, "retired": [{"uid": "o"}]`),
	}
	for name, content := range tests {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			path := filepath.Join(s.dir, markName(volume))
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			for op, o := range allOps {
				d, err := s.Do(t.Context(), volume, Token{"a", 3}, o, mustNotRun(t))
				if d != MarkIOError || !errors.Is(err, ErrMark) || errors.Is(err, ErrStale) {
					t.Errorf("Do(%s) = %q, %v, want %q and ErrMark", op, d, err, MarkIOError)
				}
			}
			if _, err := s.Mark(volume); !errors.Is(err, ErrMark) {
				t.Errorf("Mark = %v, want ErrMark", err)
			}
			if now, err := os.ReadFile(path); err != nil || string(now) != content {
				t.Errorf("the file was touched: %q, %v", now, err)
			}
			if err := os.Rename(path, filepath.Join(t.TempDir(), "aside")); err != nil {
				t.Fatal(err)
			}
			do(t, s, Token{"a", 3}, export)
			wantMark(t, s, live("a", 3))
		})
	}
}

// B-159: a mark that cannot even be read is not an absent one.
func TestStore_unreadableMark(t *testing.T) {
	s := open(t)
	if err := os.Mkdir(filepath.Join(s.dir, markName(volume)), 0o700); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Do(t.Context(), volume, Token{"a", 1}, create, mustNotRun(t)); d != MarkIOError || !errors.Is(err, ErrMark) {
		t.Errorf("Do = %q, %v, want ErrMark", d, err)
	}
}

// N-6: two files that changed places speak of each other's volume, and nobody believes them.
func TestStore_swappedMarks(t *testing.T) {
	s := open(t)
	const other = "vg0/pvc-2"
	do(t, s, Token{"a", 1}, create)
	if _, err := s.Do(t.Context(), other, Token{"b", 1}, create, nothing); err != nil {
		t.Fatal(err)
	}
	one, two, aside := s.path(volume), s.path(other), filepath.Join(s.dir, "aside")
	if err := errors.Join(os.Rename(one, aside), os.Rename(two, one), os.Rename(aside, two)); err != nil {
		t.Fatal(err)
	}
	for id, tok := range map[string]Token{volume: {"a", 2}, other: {"b", 2}} {
		if d, err := s.Do(t.Context(), id, tok, destroy, mustNotRun(t)); d != MarkIOError || !errors.Is(err, ErrMark) {
			t.Errorf("Do(%s) = %q, %v, want ErrMark", id, d, err)
		}
	}
}

// B-160: with the directory gone, before a start or under a running agent, the first token
// is a new life, and no effect begins before its mark is on disk.
func TestStore_lostDirectory(t *testing.T) {
	s := open(t)
	do(t, s, Token{"a", 7}, create)
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	if d, err := s.Do(t.Context(), volume, Token{"a", 8}, destroy, mustNotRun(t)); d != MarkIOError || !errors.Is(err, ErrMark) {
		t.Errorf("Do without the directory = %q, %v, want ErrMark", d, err)
	}
	again, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if d, err := again.Do(t.Context(), volume, Token{"a", 8}, destroy, nothing); d != AdmitNewLifecycle || err != nil {
		t.Errorf("Do after a start = %q, %v, want %q", d, err, AdmitNewLifecycle)
	}
	wantMark(t, again, ended(live("a", 8), Deleted))
}
