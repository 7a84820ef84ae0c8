// Package powercuttest cuts the power of a block device. It records what an operation
// writes, with the kernel's dm-log-writes target, and then shows every state that a cut may
// have left the device in, at the same path.
//
//	spare disk 0   the device while it is recorded, its replay, room for what a check writes
//	spare disk 1   the log
//	/dev/pillar-power
//	    Record     log-writes over the device
//	    EachCut    snapshot over the replay, thrown away after each check
//
// A disk has a cache. What a flush or a FUA write has put on the disk stays; of what was
// written since, any part in any order may be there. The log has what is needed to tell
// (drivers/md/dm-log-writes.c, Documentation/admin-guide/device-mapper/log-writes.rst): a
// FUA write and a mark are logged when they complete, all other writes only once a flush
// that began after their completion has ended, just before that flush. So a mark stands
// behind everything that was safe when it was put, and before everything that was not.
package powercuttest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// Path is the device, while it is recorded and in each check.
const Path = "/dev/" + device

// The device-mapper devices.
const (
	device = "pillar-power"
	replay = "pillar-power-replay"
	room   = "pillar-power-room"
)

// MaxBytes is the largest device: a third of a spare disk, with a little for udev's eyes.
const MaxBytes = 320 << 20

// seedEnv repeats a run: the seed that it printed.
const seedEnv = "PILLAR_POWER_SEED"

// Disk is the device. One at a time can exist.
type Disk struct {
	t        *testing.T
	bytes    int64
	disk     string // spare disk 0
	log      string // spare disk 1
	replay   *os.File
	recorded *recording // the newest
	shown    image      // of its sectors, what the replay holds
	rand     *rand.Rand

	// Ordered is how many bytes at the start are written in order, and never torn: for a
	// writer that depends on that and does not flush, so that its own weakness does not hide
	// what else goes wrong.
	Ordered int64

	// Cuts bounds how many states of one recording are checked, 0 for all. Those just
	// after a flush, a FUA write or a mark are always among them, the others are drawn.
	Cuts int
}

// New answers a device of so many bytes, all zero, until the test ends.
func New(t *testing.T, bytes int64) *Disk {
	t.Helper()
	hosttest.Need(t, "dm_mod", "dm_log_writes", "dm_snapshot")
	if bytes > MaxBytes {
		t.Fatalf("a device of %d bytes: at most %d", bytes, MaxBytes)
	}
	d := &Disk{t: t, bytes: bytes, disk: hosttest.Disk(t, 0), log: hosttest.Disk(t, 1)}
	d.rand = rand.New(rand.NewPCG(seed(t), 0))
	for _, name := range []string{device, replay, room} { // of a test that was killed
		_ = removeDM(name)
	}
	d.create(replay, "linear", fmt.Sprintf("%s %d", d.disk, MaxBytes/sectorSize))
	d.create(room, "linear", fmt.Sprintf("%s %d", d.disk, 2*MaxBytes/sectorSize))
	var err error
	if d.replay, err = os.OpenFile(nodePath(replay), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	for _, path := range []string{d.disk, d.replay.Name()} {
		if err := zero(path, bytes); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func seed(t *testing.T) uint64 {
	s := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedEnv); text != "" {
		var err error
		if s, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", seedEnv, err)
		}
	}
	t.Logf("%s=%d", seedEnv, s)
	return s
}

func zero(path string, bytes int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	empty := make([]byte, 1<<20)
	for at := int64(0); at < bytes; at += int64(len(empty)) {
		if _, err := f.WriteAt(empty[:min(int64(len(empty)), bytes-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}

func (d *Disk) close() {
	err := d.replay.Close()
	for _, name := range []string{replay, room} {
		err = errors.Join(err, removeDM(name))
	}
	if err != nil {
		d.t.Error(err)
	}
}

// Prepare runs op, which works on the device, and loses nothing of what it writes. op lets go
// of the device before it returns.
func (d *Disk) Prepare(t *testing.T, op func()) {
	t.Helper()
	d.create(device, "linear", d.disk+" 0")
	op()
	d.remove(device)
	if err := copyDisk(d.replay, d.disk, d.bytes); err != nil {
		t.Fatal(err)
	}
	d.recorded = nil
}

func copyDisk(to *os.File, path string, bytes int64) error {
	from, err := openPast(path)
	if err != nil {
		return err
	}
	defer from.Close()
	_, err = io.Copy(io.NewOffsetWriter(to, 0), io.LimitReader(from, bytes))
	return errors.Join(err, to.Sync())
}

// Record runs op, which works on the device, and remembers what it writes. With mark op notes
// how far it came: each cut knows which marks had been put before it (Cut.Passed). op lets
// go of the device before it returns. The next recording goes on from what this one left.
func (d *Disk) Record(t *testing.T, op func(mark func(what string))) {
	t.Helper()
	if d.recorded != nil {
		d.show(d.recorded.whole())
	}
	d.create(device, "log-writes", d.disk+" "+d.log)
	op(func(what string) {
		if err := hosttest.DMMessage(device, "mark "+oneWord(what)); err != nil {
			t.Errorf("mark %q: %v", what, err)
		}
	})
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	d.remove(device)
	log, err := readDisk(d.log)
	if err != nil {
		t.Fatalf("log on %s: %v", d.log, err)
	}
	d.recorded = newRecording(log)
	d.recorded.ordered = d.Ordered
	if d.shown, err = d.recorded.read(d.replay); err != nil {
		t.Fatal(err)
	}
	d.recorded.before = d.shown
}

// flush has the kernel log what nobody flushed. The end of the target would log it too, but in
// front of a mark that waits to be logged (log_writes_dtr).
func flush() error {
	f, err := os.OpenFile(Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// readDisk reads the log that the kernel wrote to a disk.
func readDisk(path string) ([]entry, error) {
	f, err := openPast(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLog(f)
}

// openPast opens a disk that a device on top wrote to, past what somebody's earlier look at
// the disk itself has left in memory.
func openPast(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// EachCut shows every state that a power cut in the newest recording may have left, up to
// d.Cuts, each to one check. A check may write to the device as it likes, and lets go of it
// before its test ends. The first that fails is the last.
func (d *Disk) EachCut(t *testing.T, check func(t *testing.T, cut Cut)) {
	t.Helper()
	all := d.recorded.cuts(d.rand)
	chosen := sample(all, d.Cuts, d.rand)
	t.Logf("%s: %d of %d states", d.recorded, len(chosen), len(all))
	for _, cut := range chosen {
		d.show(d.recorded.image(cut))
		d.create(device, "snapshot", nodePath(replay)+" "+nodePath(room)+" N 8")
		ok := t.Run(cut.String(), func(t *testing.T) { check(t, cut) })
		d.remove(device)
		if !ok {
			t.FailNow()
		}
	}
}

// show makes the replay hold an image of the recording's sectors.
func (d *Disk) show(want image) {
	d.t.Helper()
	err := d.recorded.differences(d.shown, want, func(at int64, data []byte) error {
		_, err := d.replay.WriteAt(data, at)
		return err
	})
	if err := errors.Join(err, d.replay.Sync()); err != nil {
		d.t.Fatal(err)
	}
	d.shown = want
}

// create makes a device-mapper device of the disk's size.
func (d *Disk) create(name, target, params string) {
	d.t.Helper()
	if err := createDM(name, d.bytes/sectorSize, target, params); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Disk) remove(name string) {
	d.t.Helper()
	if err := removeDM(name); err != nil {
		d.t.Fatal(err)
	}
}
