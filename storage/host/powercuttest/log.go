package powercuttest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// The log's format (drivers/md/dm-log-writes.c): a superblock in the first sector, then per
// entry a sector of its own with a mark's text in it, and after it the data that was
// written. A discard has none.
const (
	logMagic   = 0x6a736677736872
	logVersion = 1
	superBytes = 8 + 8 + 8 + 4
	entryBytes = 4 * 8

	flagFlush   = 1 << 0
	flagFUA     = 1 << 1
	flagDiscard = 1 << 2
	flagMark    = 1 << 3

	endMark = "dm-log-writes-end" // the target's own, at its end
)

// entry is one write, flush, discard or mark.
type entry struct {
	flags uint64
	at    int64  // byte on the device
	size  int64  // in bytes; 0 for a mark and a bare flush
	data  []byte // size bytes, none for a discard
	mark  string
}

func (e entry) is(flag uint64) bool { return e.flags&flag != 0 }

// readLog reads the log of a log-writes device that is gone or was just marked: only then
// does the superblock count all entries.
func readLog(r io.ReaderAt) ([]entry, error) {
	super := make([]byte, superBytes)
	if _, err := r.ReadAt(super, 0); err != nil {
		return nil, err
	}
	field := func(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if field(super, 0) != logMagic || field(super, 1) != logVersion {
		return nil, fmt.Errorf("superblock %x is not one of version %d", super, logVersion)
	}
	sector := int64(binary.LittleEndian.Uint32(super[24:]))
	if sector < sectorSize {
		return nil, fmt.Errorf("sectors of %d bytes", sector)
	}
	log := make([]entry, field(super, 2))
	next := sector
	for i := range log {
		head := make([]byte, sector)
		if _, err := r.ReadAt(head, next); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		next += sector
		e := entry{flags: field(head, 2), at: int64(field(head, 0)) * sector, size: int64(field(head, 1)) * sector}
		switch {
		case e.is(flagMark):
			text := head[entryBytes:]
			e.mark = string(bytes.TrimRight(text[:min(field(head, 3), uint64(len(text)))], "\x00"))
		case !e.is(flagDiscard):
			e.data = make([]byte, e.size)
			if _, err := r.ReadAt(e.data, next); err != nil {
				return nil, fmt.Errorf("data of entry %d: %w", i, err)
			}
			next += e.size
		}
		log[i] = e
	}
	return log, nil
}
