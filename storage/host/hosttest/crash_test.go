package hosttest_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// Two durable writes: a process killed before each rename and then one left alone see the
// files come one after the other.
func TestEachCrash(t *testing.T) {
	if got, want := walkTwoWrites(t), []int{0, 1, 2}; !slices.Equal(got, want) {
		t.Errorf("files after each crash: %v, want %v", got, want)
	}
}

func TestEachCrash_bothSides(t *testing.T) {
	t.Setenv("PILLAR_CRASH_BOTH", "1")
	if got, want := walkTwoWrites(t), []int{0, 1, 1, 2, 2}; !slices.Equal(got, want) {
		t.Errorf("files after each crash: %v, want %v", got, want)
	}
}

// walkTwoWrites answers how many of two files each crash left.
func walkTwoWrites(t *testing.T) (seen []int) {
	dir := filepath.Join(os.TempDir(), "pillar-each-crash")
	write := func() error {
		if err := durable.Prepare(dir, 0o700); err != nil {
			return err
		}
		for _, name := range []string{"one", "two"} {
			if err := durable.Write(filepath.Join(dir, name), nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	}
	hosttest.EachCrash(t, write, func(t *testing.T) {
		names, _ := filepath.Glob(filepath.Join(dir, "[a-z]*")) // without unfinished writes
		seen = append(seen, len(names))
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	})
	return seen
}
