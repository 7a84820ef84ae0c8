package hosttest_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// Two durable writes: five processes, killed on either side of each rename and then left
// alone, see the files come one after the other.
func TestEachCrash(t *testing.T) {
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
	var seen []int
	hosttest.EachCrash(t, write, func(t *testing.T) {
		names, _ := filepath.Glob(filepath.Join(dir, "[a-z]*")) // without unfinished writes
		seen = append(seen, len(names))
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	})
	if want := [5]int{0, 1, 1, 2, 2}; len(seen) != 5 || [5]int(seen) != want {
		t.Errorf("files after each crash: %v, want %v", seen, want)
	}
}
