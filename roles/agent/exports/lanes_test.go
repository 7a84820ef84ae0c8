package exports_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/transport"
)

// many are volumes of a pool, by 0 and on.
func many(pool string, count int) (items []agentrpc.Item) {
	for i := range count {
		items = append(items, item(fmt.Sprintf("%s/%03d", pool, i), 1))
	}
	return items
}

// at gives items a port of their own.
func at(port uint16, items []agentrpc.Item) []agentrpc.Item {
	for i := range items {
		items[i].Export.Portal.Port = port
	}
	return items
}

// restored sends the complete request as a controller does, with a deadline, and answers
// how many volumes of each pool failed, and how long it took.
func (n *node) restored(items []agentrpc.Item) (failed map[string]int, took time.Duration) {
	n.t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Hour)
	defer cancel()
	results, err := n.gate.Restore(ctx, items)
	if err != nil || len(results) != len(items) {
		n.t.Fatalf("Restore = %d results, %v, want %d", len(results), err, len(items))
	}
	failed = map[string]int{}
	for _, r := range results {
		if r.Err != nil {
			pool, _, _ := strings.Cut(r.Volume, "/")
			failed[pool]++
		}
	}
	return failed, time.Since(begun)
}

// A pool that hangs costs its own volumes, and once: neither 10 s nor 3 s for each.
func TestGate_RestoreBesideAHangingPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		let := make(chan struct{})
		defer close(let)
		n.stuck = map[string]chan struct{}{"dead": let}
		items := append(at(4421, many("dead", 100)), many("vg0", 100)...)
		failed, took := n.restored(items)
		if failed["dead"] != 100 || failed["vg0"] != 0 || len(n.linked) != 100 {
			t.Errorf("failed = %v with %d linked, want all of dead and none of vg0", failed, len(n.linked))
		}
		if took > 40*time.Second {
			t.Errorf("Restore took %v, want the time of one volume that hangs", took)
		}
		if _, err := n.gate.Resync(t.Context(), items); !errors.Is(err, agentrpc.ErrUnavailable) {
			t.Errorf("Resync = %v, want a closed gate: dead's port waits", err)
		}
	})
}

// A pool is asked again only when every look at it has ended, not the first of two.
func TestGate_TwoLooksHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.restore()
		hangs := func() bool {
			results, err := n.gate.Resync(t.Context(), many("dead", 2))
			if err != nil {
				t.Errorf("Resync = %v", err)
			}
			return len(results) == 2 && results[0].Err != nil
		}
		first, second := make(chan struct{}), make(chan struct{})
		for _, let := range []chan struct{}{first, second} {
			n.stuck = map[string]chan struct{}{"dead": let}
			go hangs()
			synctest.Wait() // it asks for the devices
		}
		n.stuck = nil
		time.Sleep(time.Minute)
		for _, step := range []struct {
			ends chan struct{}
			want bool
		}{{first, true}, {second, false}} {
			close(step.ends)
			synctest.Wait()
			if got := hangs(); got != step.want {
				t.Errorf("the pool hangs: %v, want %v", got, step.want)
			}
		}
	})
}

// One volume that hangs does not make its pool hang.
func TestGate_RestoreBesideAHangingDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		let := make(chan struct{})
		defer close(let)
		n.hang = map[string]chan struct{}{"vg0/001": let, "vg0/007": let}
		n.linked["vg0/z"] = transport.Portal{Address: "10.0.0.1", Port: 4420} // serves already
		failed, took := n.restored(many("vg0", 100))
		if failed["vg0"] != 2 || len(n.linked) != 99 {
			t.Errorf("%d failed, %d linked, want two that hang and all others", failed["vg0"], len(n.linked))
		}
		if took > 20*time.Second {
			t.Errorf("Restore took %v, want the time of two volumes that hang", took)
		}
	})
}

// Volumes are prepared beside each other, as many as there are processors, and linked in
// order: the first link decides what the port is (B-274).
func TestGate_RestoreUsesEveryProcessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		processors(t, 2)
		let := make(chan struct{})
		n.hang = map[string]chan struct{}{"vg0/000": let} // until the next has been prepared
		n.advance = func(volume string) {
			if volume == "vg0/001" {
				close(let)
			}
		}
		if failed, took := n.restored(many("vg0", 4)); len(failed) > 0 || took >= time.Second {
			t.Errorf("Restore took %v, failed %v, want no wait for another lane", took, failed)
		}
		n.trace = slices.DeleteFunc(n.trace, func(line string) bool { return strings.HasPrefix(line, "prepare") })
		n.wantTrace("quiet 4420", "link vg0/000", "link vg0/001", "link vg0/002", "link vg0/003", "loud 4420")
	})
}

// The periodic request about a hundred volumes answers in time, whatever hangs.
func TestGate_ResyncBesideAHangingPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.restore()
		let := make(chan struct{})
		defer close(let)
		n.stuck = map[string]chan struct{}{"dead": let}
		begun := time.Now()
		results, err := n.gate.Resync(t.Context(), append(many("dead", 50), many("vg0", 50)...))
		failed := 0
		for _, r := range results {
			if r.Err != nil {
				failed++
			}
		}
		if err != nil || failed != 50 || len(n.linked) != 50 {
			t.Errorf("Resync = %d of %d failed, %v, %d linked, want those of dead", failed, len(results), err, len(n.linked))
		}
		if took := time.Since(begun); took > 40*time.Second {
			t.Errorf("Resync took %v, want the time of one volume that hangs", took)
		}
	})
}
