package powercuttest

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"unique"
)

// sectorSize is the unit of the kernel's sector numbers.
const sectorSize = 512

// sector is the content of one sector; equal contents are equal values.
type sector = unique.Handle[string]

func content512(b []byte) sector { return unique.Make(string(b)) }

var empty = content512(make([]byte, sectorSize))

// image is what a recording's sectors hold.
type image []sector

// recording is a log and the sectors that it writes.
type recording struct {
	log     []entry
	sectors []int64       // numbers, sorted
	index   map[int64]int // number -> place in sectors
	content [][]sector    // of each entry
	before  image         // what the sectors held before the recording
	ordered int64         // Disk.Ordered
}

func newRecording(log []entry) *recording {
	r := &recording{log: log, index: map[int64]int{}, content: make([][]sector, len(log))}
	for i, e := range log {
		for at := int64(0); at < e.size; at += sectorSize {
			s := (e.at + at) / sectorSize
			if _, ok := r.index[s]; !ok {
				r.index[s] = 0
				r.sectors = append(r.sectors, s)
			}
			c := empty
			if e.data != nil {
				c = content512(e.data[at : at+sectorSize])
			}
			r.content[i] = append(r.content[i], c)
		}
	}
	slices.Sort(r.sectors)
	for i, s := range r.sectors {
		r.index[s] = i
	}
	return r
}

// read answers what a device holds in the recording's sectors.
func (r *recording) read(dev io.ReaderAt) (image, error) {
	img := make(image, len(r.sectors))
	b := make([]byte, sectorSize)
	for i, s := range r.sectors {
		if _, err := dev.ReadAt(b, s*sectorSize); err != nil {
			return nil, err
		}
		img[i] = content512(b)
	}
	return img, nil
}

func (r *recording) String() string {
	count := func(flag uint64) (n int) {
		for _, e := range r.log {
			if e.is(flag) {
				n++
			}
		}
		return n
	}
	return fmt.Sprintf("%d log entries, %d flushes, %d FUA, %d discards, %d KiB of sectors",
		len(r.log), count(flagFlush), count(flagFUA), count(flagDiscard), len(r.sectors)*sectorSize>>10)
}

// Cut is one state that a power cut may leave the device in.
type Cut struct {
	marks []string // put before the cut
	after int      // so many entries of the log are on the disk
	safe  bool     // the last of them is a flush, a FUA write or a mark
	part  part     // and this of what was in the cache then
}

// part is some of the cached writes, in the log's order.
type part struct {
	what   string
	pieces []piece
	drawn  bool // at random
}

// piece is the start of a write: a cut may tear it.
type piece struct {
	entry, sectors int
}

func (c Cut) String() string {
	s := fmt.Sprintf("after entry %d", c.after)
	if c.part.what != "" {
		s += ", with " + c.part.what
	}
	if len(c.marks) > 0 {
		s += ", " + c.marks[len(c.marks)-1]
	}
	return s
}

// Passed tells whether the power failed only after that mark was put.
func (c Cut) Passed(mark string) bool {
	return slices.Contains(c.marks, oneWord(mark))
}

// oneWord is a mark as the kernel takes it (log_writes_message).
func oneWord(mark string) string { return strings.ReplaceAll(mark, " ", "-") }

// whole is the image after all of the log.
func (r *recording) whole() image { return r.image(Cut{after: len(r.log)}) }

func (r *recording) image(c Cut) image {
	img := slices.Clone(r.before)
	for i := range c.after {
		r.write(img, piece{i, len(r.content[i])})
	}
	for _, p := range c.part.pieces {
		r.write(img, p)
	}
	return img
}

func (r *recording) write(img image, p piece) {
	first := r.log[p.entry].at / sectorSize
	for i, c := range r.content[p.entry][:p.sectors] {
		img[r.index[first+int64(i)]] = c
	}
}

// Marks that say which cuts matter: those before Begun and those after the first flush
// behind Answered belong to what was done around the operation.
const (
	Begun    = "begun"
	Answered = "answered"
)

// span answers after how many entries the first and the last cut are.
func (r *recording) span() (first, last int) {
	last = len(r.log)
	over := false
	for i, e := range r.log {
		switch {
		case e.mark == Begun:
			first = i + 1
		case e.mark == Answered:
			over = true
		case over && e.is(flagFlush):
			return first, i + 1
		}
	}
	return first, last
}

// cuts answers every state: after each entry of the log and, where something had just become
// safe, with parts of what was in the cache then. States that look the same are one.
func (r *recording) cuts(rnd *rand.Rand) (all []Cut) {
	seen := map[uint64]int{}
	seed := maphash.MakeSeed()
	add := func(c Cut) {
		var h maphash.Hash
		h.SetSeed(seed)
		maphash.WriteComparable(&h, len(c.marks))
		for _, s := range r.image(c) {
			maphash.WriteComparable(&h, s)
		}
		sum := h.Sum64()
		if i, ok := seen[sum]; !ok {
			seen[sum] = len(all)
			all = append(all, c)
		} else if c.rank() < all[i].rank() {
			all[i] = c
		}
	}
	first, last := r.span()
	var marks []string
	for after := range last + 1 {
		safe := after == 0 || r.log[after-1].is(flagFlush|flagFUA|flagMark)
		if after > 0 && r.log[after-1].is(flagMark) && r.log[after-1].mark != endMark {
			marks = append(marks, r.log[after-1].mark)
		}
		if after < first {
			continue
		}
		c := Cut{marks: slices.Clip(marks), after: after, safe: safe}
		add(c)
		if safe && after < last {
			for _, part := range r.cached(after, rnd) {
				c.part = part
				add(c)
			}
		}
	}
	return all
}

// tear is what a disk writes whole, in sectors: 4 KiB, as all disks of today. XFS depends on
// it: a metadata block whose head is new is not replayed from the journal, because the head
// says how new the block is (xlog_recover_buf_commit_pass2 in fs/xfs/xfs_buf_item_recover.c).
const tear = 8

// draws is how many parts of a cache are drawn at random, beside those that a wrong order
// shows best.
const draws = 3

// cached answers parts of what was in the disk's cache once so many entries were safe: the
// writes that the next flush made safe. Before a FUA write there is nothing to answer: the
// log has it in front of them all, also of those that were only issued because it had ended.
func (r *recording) cached(after int, rnd *rand.Rand) []part {
	var all []piece
	for i := after; i < len(r.log) && !r.log[i].is(flagFlush); i++ {
		if r.log[i].is(flagFUA) {
			return nil
		}
		if n := len(r.content[i]); n > 0 {
			all = append(all, piece{i, n})
		}
	}
	if len(all) == 0 {
		return nil
	}
	parts := []part{
		{what: "the last cached write", pieces: all[len(all)-1:]},
		{what: "all cached writes but the first", pieces: all[1:]},
	}
	for range draws {
		parts = append(parts, draw(all, rnd))
	}
	for i := range parts {
		parts[i].pieces = r.inOrder(all, parts[i].pieces)
	}
	return parts
}

// inOrder leaves out the pieces that another must precede which is not there whole.
func (r *recording) inOrder(all, pieces []piece) (kept []piece) {
	broken := false
	for _, w := range all {
		i := slices.IndexFunc(pieces, func(p piece) bool { return p.entry == w.entry })
		switch ordered := r.log[w.entry].at < r.ordered; {
		case ordered && (broken || i < 0 || pieces[i] != w):
			broken = true
		case i >= 0:
			kept = append(kept, pieces[i])
		}
	}
	return kept
}

// draw keeps each write with even odds, and of some only the start.
func draw(all []piece, rnd *rand.Rand) part {
	p := part{drawn: true}
	for _, w := range all {
		if rnd.IntN(2) == 0 {
			continue
		}
		if blocks := (w.sectors - 1) / tear; blocks > 0 && rnd.IntN(4) == 0 {
			w.sectors = tear * (1 + rnd.IntN(blocks))
		}
		p.pieces = append(p.pieces, w)
	}
	p.what = fmt.Sprintf("%d of %d cached writes", len(p.pieces), len(all))
	return p
}

// sample answers at most so many of the cuts, 0 for all, in their order. Those where
// something had just become safe are all among them; of the others, those that a wrong order
// shows best come first, and chance decides between equals.
func sample(all []Cut, limit int, rnd *rand.Rand) (chosen []Cut) {
	if limit == 0 {
		return all
	}
	order := rnd.Perm(len(all))
	slices.SortStableFunc(order, func(i, j int) int { return all[i].rank() - all[j].rank() })
	take := make([]bool, len(all))
	for n, i := range order {
		take[i] = n < limit || all[i].rank() == 0
	}
	for i, c := range all {
		if take[i] {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

// rank is how soon a sample has the cut.
func (c Cut) rank() int {
	switch {
	case c.safe && c.part.what == "":
		return 0
	case c.safe && !c.part.drawn:
		return 1
	default:
		return 2
	}
}

// differences hands write what makes an image of one of another, in runs.
func (r *recording) differences(from, to image, write func(at int64, data []byte) error) error {
	for i := 0; i < len(to); {
		if from[i] == to[i] {
			i++
			continue
		}
		var run bytes.Buffer
		first := r.sectors[i]
		for n := first; i < len(to) && r.sectors[i] == n && from[i] != to[i]; n++ {
			run.WriteString(to[i].Value())
			i++
		}
		if err := write(first*sectorSize, run.Bytes()); err != nil {
			return err
		}
	}
	return nil
}
