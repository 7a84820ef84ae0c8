package powercuttest_test

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/host/powercuttest"
)

// A disk that loses power must show who left a sync out, else it proves nothing: the states
// after the operation had answered, for a writer that syncs and for those that do not.
func TestDisk_kernel(t *testing.T) {
	type write struct {
		at   byte
		sync bool
	}
	tests := map[string]struct {
		writes []write
		want   string // what the two blocks may hold, "." the old
	}{
		"synced":     {[]write{{0, true}, {1, true}}, "ab"},
		"not synced": {[]write{{0, false}, {1, false}}, ".. .b a. ab"},
		"one sync":   {[]write{{0, true}, {1, false}}, "a. ab"},
	}
	hosttest.Need(t, "dm_log_writes")
	disk := powercuttest.New(t, 16<<20)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			disk.Record(t, func(func(string)) {
				put(t, 0, '.', true)
				put(t, 1, '.', true)
			})
			disk.Record(t, func(mark func(string)) {
				for _, w := range tt.writes {
					put(t, w.at, 'a'+w.at, w.sync)
				}
				mark("it has answered")
			})
			var got []string
			disk.EachCut(t, func(t *testing.T, cut powercuttest.Cut) {
				if cut.Passed("it has answered") {
					got = append(got, string([]byte{look(t, 0), look(t, 1)}))
				}
				put(t, 0, 'x', true) // a check may write what it likes
			})
			slices.Sort(got)
			if got := strings.Join(slices.Compact(got), " "); got != tt.want {
				t.Errorf("blocks after the answer: %s, want %s", got, tt.want)
			}
		})
	}
}

const block = 4096

// put writes a block. Closing the device writes it out, into the disk's cache.
func put(t *testing.T, at, content byte, sync bool) {
	t.Helper()
	f, err := os.OpenFile(powercuttest.Path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{content}, block), int64(at)*block)
	if sync {
		err = errors.Join(err, f.Sync())
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

// look answers what a block is full of.
func look(t *testing.T, at byte) byte {
	t.Helper()
	f, err := os.Open(powercuttest.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, block)
	if _, err := f.ReadAt(b, int64(at)*block); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, bytes.Repeat(b[:1], block)) {
		t.Errorf("block %d is mixed", at)
	}
	return b[0]
}
