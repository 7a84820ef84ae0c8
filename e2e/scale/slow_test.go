//go:build lab

package scale

import (
	"context"
	"testing"
	"time"
)

// TestWorld_slowAgent: an agent takes 12 s longer for each change than it should, and 100 claims
// come at once. No sidecar gives up and asks again: each volume is made by one call (H-78).
func TestWorld_slowAgent(t *testing.T) {
	const count, late = 100, 12 * time.Second
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	w, err := Start(ctx, logs(t), Config{Agents: 1, Sidecars: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	r, a := &run{World: w, T: t}, w.Agents[0]
	a.Slow(late)
	begun := time.Now()
	if err := r.claim(ctx, count); err != nil {
		t.Fatal(err)
	}
	if err := r.bound(ctx, count); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d claims bound in %.0f s", count, time.Since(begun).Seconds())
	_, _, creates := a.Volumes()
	if calls := a.Calls()["CreateVolume"]; len(creates) != count || calls != count {
		t.Errorf("%d volumes made by %d calls, want %d by as many", len(creates), calls, count)
	}
	a.Slow(0)
	if err := r.remove(ctx); err != nil {
		t.Fatal(err)
	}
}
