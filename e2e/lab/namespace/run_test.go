package namespace

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestNewRun(t *testing.T) {
	cache := t.TempDir()
	killed, lock, err := newRun(cache)
	if err != nil {
		t.Fatal(err)
	}
	lock.Close() // as the end of pid 1 would
	living, lock, err := newRun(cache)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := os.Stat(killed); !os.IsNotExist(err) {
		t.Errorf("the directory of a killed lab is still there: %v", err)
	}
	another, lock2, err := newRun(cache)
	if err != nil {
		t.Fatal(err)
	}
	defer lock2.Close()
	for _, run := range []string{living, another} {
		if alive, err := isAlive(run); !alive || err != nil {
			t.Errorf("isAlive(%s) = %v, %v, want true", run, alive, err)
		}
	}
}

func TestFinishRun(t *testing.T) {
	tests := map[string]struct {
		code int
		kept bool
	}{
		"success": {code: 0},
		"failure": {code: 1, kept: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			run, lock, err := newRun(cache)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			guest := filepath.Join(run, "guests-1", "storage-1")
			if err := os.MkdirAll(guest, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(guest, "console.log"), []byte("panic"), 0o644); err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			if err := finishRun(run, test.code, &log); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(run); !os.IsNotExist(err) {
				t.Errorf("the run's directory is still there: %v", err)
			}
			kept, _ := filepath.Glob(filepath.Join(cache, "failed", "*", "storage-1.log"))
			if (len(kept) == 1) != test.kept || strings.Contains(log.String(), "consoles") != test.kept {
				t.Errorf("kept %q, told %q, want kept %v", kept, log.String(), test.kept)
			}
		})
	}
}
