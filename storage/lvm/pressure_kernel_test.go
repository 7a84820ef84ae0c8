package lvm_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// writeThin writes n bytes at off to a volume and has them on the disk.
func writeThin(name string, off int64, n int) error {
	f, err := blockdev.Open("/dev/"+vg+"/"+name, os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, n), off)
	return errors.Join(err, f.Sync(), f.Close())
}

func wantError(t *testing.T, what string, err, kind error, text string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s = %v, want %v with %q", what, err, kind, text)
	}
}

// patience sets how long dm-thin keeps writes that find no space, in seconds; it is 60.
func patience(t *testing.T, seconds int) {
	t.Helper()
	const file = "/sys/module/dm_thin_pool/parameters/no_space_timeout"
	if err := os.WriteFile(file, fmt.Append(nil, seconds), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.WriteFile(file, []byte("60"), 0) })
}

// H-51, N-1: a thin pool full to the brim. Writes without space are kept for a while, then
// reported as lost; what was acknowledged stays; the group's other volumes go on; when the
// pool grows in time, nothing is lost at all.
func TestGroup_thinFull_kernel(t *testing.T) {
	g := thinPool(t, 20)
	patience(t, 2)
	ctx := t.Context()
	for _, s := range []storage.Spec{thin("pvc-1", 64<<20), spec("pvc-linear", 8<<20)} {
		if _, err := g.Create(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeThin("pvc-1", 0, 20<<20); err != nil {
		t.Fatalf("write what the pool holds = %v", err)
	}
	start := time.Now()
	if err := writeThin("pvc-1", 20<<20, chunk); err == nil || time.Since(start) < time.Second {
		t.Errorf("write without space = %v after %s, want an error after 2 s", err, time.Since(start))
	}
	wantFull(t, "pvc-1", 80*chunk, 0xa5)
	wantError(t, "Health", g.Health(ctx), storage.ErrNoSpace, "lvextend --size +SIZE "+vg+"/"+tp)
	if err := writeThin("pvc-linear", 0, 8<<20); err != nil {
		t.Errorf("write to a linear volume beside it = %v", err)
	}
	if _, err := g.Create(ctx, spec("pvc-linear2", 8<<20)); err != nil {
		t.Errorf("Create of a linear volume beside it = %v", err)
	}
	tool(t, "lvextend", "--size", "+20m", vg+"/"+tp)
	if err := writeThin("pvc-1", 20<<20, 20<<20); err != nil {
		t.Errorf("write after lvextend = %v", err)
	}
	patience(t, 60)
	late := make(chan error, 1)
	go func() { late <- writeThin("pvc-1", 40<<20, chunk) }()
	time.Sleep(time.Second) // it waits in the kernel by now
	tool(t, "lvextend", "--size", "+20m", vg+"/"+tp)
	if err := <-late; err != nil {
		t.Errorf("write that waited for lvextend = %v", err)
	}
	wantFull(t, "pvc-1", 161*chunk, 0xa5)
	if err := g.Health(ctx); err != nil {
		t.Errorf("Health = %v", err)
	}
	tool(t, "lvchange", "--errorwhenfull", "y", vg+"/"+tp) // an operator's choice: at once
	if err := writeThin("pvc-1", 40<<20+chunk, 20<<20-chunk); err != nil {
		t.Errorf("write what the pool holds = %v", err)
	}
	start = time.Now()
	if err := writeThin("pvc-1", 60<<20, chunk); err == nil || time.Since(start) > 30*time.Second {
		t.Errorf("write without space = %v after %s, want an error at once", err, time.Since(start))
	}
	wantFull(t, "pvc-1", 240*chunk, 0xa5)
}

// H-52: metadata to the brim, by thin devices that LVM knows nothing of. LVM takes no new
// volume from three quarters on, and the kernel makes the pool read-only at the end: writes
// to new chunks fail, the rest goes on, and more metadata brings the pool back.
func TestGroup_thinMetadata_kernel(t *testing.T) {
	g := thinPool(t, 20)
	ctx := t.Context()
	if _, err := g.Create(ctx, thin("pvc-1", 16<<20)); err != nil {
		t.Fatal(err)
	}
	if err := writeThin("pvc-1", 0, 4*chunk); err != nil {
		t.Fatal(err)
	}
	pool := strings.ReplaceAll(vg, "-", "--") + "-" + tp + "-tpool"
	id := fillMetadata(t, pool, 1000, 80)
	_, err := g.Create(ctx, thin("pvc-2", 16<<20))
	wantError(t, "Create at 80 %", err, storage.ErrNoSpace, "free space in metadata of thin pool")
	if err := g.Health(ctx); err == nil || !strings.Contains(err.Error(), "more than 80 % of its metadata") {
		t.Errorf("Health at 80 %% = %v, want it to complain", err)
	}
	fillMetadata(t, pool, id, 100)
	_, err = g.Create(ctx, thin("pvc-2", 16<<20))
	wantError(t, "Create", err, storage.ErrNoSpace, "lvextend --poolmetadatasize +SIZE "+vg+"/"+tp)
	_, err = g.Expand(ctx, "pvc-1", owner, 32<<20)
	wantError(t, "Expand", err, storage.ErrNoSpace, "lvextend --poolmetadatasize")
	wantError(t, "Health", g.Health(ctx), storage.ErrNoSpace, "metadata")
	if err := writeThin("pvc-1", 8<<20, chunk); err == nil {
		t.Error("a write to a new chunk of a read-only pool succeeded")
	}
	if err := writeThin("pvc-1", 0, 4*chunk); err != nil {
		t.Errorf("write to chunks it has = %v", err)
	}
	wantFull(t, "pvc-1", 4*chunk, 0xa5)
	if _, err := g.Create(ctx, spec("pvc-linear", 8<<20)); err != nil {
		t.Errorf("Create of a linear volume beside it = %v", err)
	}
	tool(t, "lvextend", "--poolmetadatasize", "+8m", vg+"/"+tp)
	if _, err := g.Expand(ctx, "pvc-1", owner, 32<<20); err != nil {
		t.Errorf("Expand after lvextend = %v", err)
	}
	if err := writeThin("pvc-1", 8<<20, chunk); err != nil {
		t.Errorf("write after lvextend = %v", err)
	}
	wantFull(t, "pvc-1", 4*chunk, 0xa5)
}

// fillMetadata makes thin devices until so many percent of the metadata is used, and answers
// the next device's number. At the end the kernel refuses.
func fillMetadata(t *testing.T, pool string, id, percent int) int {
	t.Helper()
	for ; id < 3000; id++ {
		if err := hosttest.DMMessage(pool, fmt.Sprintf("create_thin %d", id)); err != nil {
			if percent < 100 {
				t.Fatal(err)
			}
			return id
		}
		if id%40 == 0 && percent < 100 {
			var used float64
			if _, err := fmt.Sscan(tool(t, "lvs", "--noheadings", "--options", "metadata_percent", vg+"/"+tp), &used); err != nil {
				t.Fatal(err)
			}
			if used >= float64(percent) {
				return id + 1
			}
		}
	}
	t.Fatal("the metadata does not fill")
	return 0
}
