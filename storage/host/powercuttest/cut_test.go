package powercuttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// disk is the bytes of a log of 512-byte sectors. Each word is an entry: a letter and a
// sector write that letter there, "F" flushes, "!" behind a write makes it FUA, "F" before
// one flushes first, "-" and a sector discards it, anything longer is a mark.
func logOf(words string) []byte {
	entries := strings.Fields(words)
	var b bytes.Buffer
	pad := func(v ...any) {
		var s bytes.Buffer
		for _, x := range v {
			binary.Write(&s, binary.LittleEndian, x)
		}
		b.Write(append(s.Bytes(), make([]byte, sectorSize-s.Len())...))
	}
	pad(uint64(logMagic), uint64(logVersion), uint64(len(entries)), uint32(sectorSize))
	for _, w := range entries {
		if len(w) > 4 {
			pad(uint64(0), uint64(0), uint64(flagMark), uint64(len(w)), []byte(w))
			continue
		}
		var flags uint64
		if rest, ok := strings.CutPrefix(w, "F"); ok {
			w, flags = rest, flags|flagFlush
		}
		if rest, ok := strings.CutSuffix(w, "!"); ok {
			w, flags = rest, flags|flagFUA
		}
		switch {
		case w == "":
			pad(uint64(0), uint64(0), flags, uint64(0))
		case w[0] == '-':
			pad(uint64(w[1]-'0'), uint64(1), flags|flagDiscard, uint64(0))
		default:
			pad(uint64(w[1]-'0'), uint64(1), flags, uint64(0))
			b.Write(bytes.Repeat([]byte{w[0]}, sectorSize))
		}
	}
	return append(b.Bytes(), make([]byte, sectorSize)...)
}

// states answers what sectors 0 to 2 may hold and how many marks were put before, if the
// disk keeps the order of so many bytes.
func states(t *testing.T, words string, ordered int64) (all []string) {
	t.Helper()
	log, err := readLog(bytes.NewReader(logOf(words)))
	if err != nil {
		t.Fatal(err)
	}
	r := newRecording(log)
	r.ordered = ordered
	old := bytes.Repeat([]byte{'.'}, 3*sectorSize)
	if r.before, err = r.read(bytes.NewReader(old)); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(64) { // what one draw leaves out another has
		for _, c := range r.cuts(rand.New(rand.NewPCG(seed, 0))) {
			disk := slices.Clone(old)
			r.differences(r.before, r.image(c), func(at int64, data []byte) error {
				copy(disk[at:], data)
				return nil
			})
			state := fmt.Sprintf("%c%c%c%d", disk[0], disk[sectorSize], disk[2*sectorSize], len(c.marks))
			all = append(all, strings.ReplaceAll(state, "\x00", "_"))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func TestCuts(t *testing.T) {
	tests := map[string]struct{ log, want string }{
		"nothing":                             {"", "...0"},
		"cached writes come in any order":     {"a0 b1", "...0 .b.0 a..0 ab.0"},
		"a flush keeps what was before it":    {"a0 F b1 F", "...0 a..0 ab.0"},
		"a write over another":                {"a0 b0 F", "...0 a..0 b..0"},
		"a FUA write is safe at once":         {"a0! b1 F", "...0 a..0 ab.0"},
		"a write that flushes first":          {"a0 Fb1! F", "...0 a..0 ab.0"},
		"a mark is safe, what is cached not":  {"a0 F later b1", "...0 a..0 a..1 ab.0 ab.1"},
		"the target's own mark is none":       {"a0 F " + endMark, "...0 a..0"},
		"what was done before it began":       {"a0 F begun b1 F", "a..1 ab.1"},
		"what was done after it had answered": {"a0 F answered b1 F c2 F", "...0 a..0 a..1 ab.0 ab.1"},
		"a discard":                           {"a0 F -0 b1", "...0 _..0 _b.0 a..0 ab.0"},
		"cached writes may wait for FUA ones": {"a0! b1! c2 F", "...0 a..0 ab.0 abc0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(states(t, tt.log, 0), " "); got != tt.want {
				t.Errorf("states of %q = %s, want %s", tt.log, got, tt.want)
			}
		})
	}
}

func TestCuts_ordered(t *testing.T) {
	const log = "a0 b1 c2 F"
	got, want := strings.Join(states(t, log, 2*sectorSize), " "), "...0 ..c0 a..0 a.c0 ab.0 abc0"
	if got != want {
		t.Errorf("states of %q with 0 and 1 in order = %s, want %s", log, got, want)
	}
}

func TestReadLog_notOne(t *testing.T) {
	for name, change := range map[string]func(b []byte) []byte{
		"no magic":  func(b []byte) []byte { b[0]++; return b },
		"version 2": func(b []byte) []byte { b[8]++; return b },
		"cut off":   func(b []byte) []byte { return b[:len(b)-2*sectorSize] },
	} {
		t.Run(name, func(t *testing.T) {
			if log, err := readLog(bytes.NewReader(change(logOf("a0 F b1")))); err == nil {
				t.Errorf("readLog = %d entries, want an error", len(log))
			}
		})
	}
}

// Torn: of a cached write of 16 sectors just the start may be there.
func TestDraw_torn(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(200) {
		for _, p := range draw([]piece{{0, 2 * tear}}, rand.New(rand.NewPCG(seed, 0))).pieces {
			seen[p.sectors] = true
		}
	}
	if len(seen) != 2 || !seen[tear] || !seen[2*tear] {
		t.Errorf("sectors drawn of %d: %v, want %d and all", 2*tear, seen, tear)
	}
}

func TestSample(t *testing.T) {
	var all []Cut
	for i := range 100 {
		all = append(all, Cut{after: i, safe: i%5 == 0})
		if i%10 == 0 {
			all[i].part.what = "the last"
		}
	}
	tests := map[int]struct{ safe, ordered, other int }{
		0:   {10, 10, 80},
		5:   {10, 0, 0},
		16:  {10, 6, 0},
		30:  {10, 10, 10},
		200: {10, 10, 80},
	}
	for limit, want := range tests {
		got := [3]int{}
		last := -1
		for _, c := range sample(all, limit, rand.New(rand.NewPCG(1, 2))) {
			got[c.rank()]++
			if c.after <= last {
				t.Errorf("sample of 100, limit %d: entry %d after %d", limit, c.after, last)
			}
			last = c.after
		}
		if got != [3]int{want.safe, want.ordered, want.other} {
			t.Errorf("sample of 100, limit %d: %d of each rank, want %v", limit, got, want)
		}
	}
}
