package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
)

// restoreRow compares the complete request after a reboot with the writes to configfs that it
// comes down to, port links included, and tells what these cost once each is read back and
// each device claimed (block.md B-2, B-426): less than that no agent can take. The LVs are
// active on all sides. What LVM's programs take of it is told apart.
func (n *node) restoreRow(count int) row {
	var ran int
	var apart time.Duration
	return row{
		name: fmt.Sprintf("restore_%d_exports_vs_raw_configfs", count), goal: 1.2, rounds: 9,
		work: func(ctx context.Context) (time.Duration, error) {
			took, err := n.restore(ctx, count)
			var programs []program
			programs, apart = n.programs.take()
			ran = len(programs)
			return took - apart, errors.Join(err, clear())
		},
		baseline: func(context.Context) (time.Duration, error) {
			took, err := rawRestore(count, &raw{})
			return took, errors.Join(err, clear())
		},
		checked: func(context.Context) (time.Duration, error) {
			took, err := rawRestore(count, &raw{checks: true})
			return took, errors.Join(err, clear())
		},
		programs: func() (int, time.Duration) { return ran, apart },
	}
}

func (n *node) restore(ctx context.Context, count int) (time.Duration, error) {
	var items []agentrpc.Item
	for i := range count {
		items = append(items, agentrpc.Item{Token: token(1), Backend: storage.LVMLV, Ready: true, Export: export(volume(i))})
	}
	n.programs.take()
	begun := time.Now()
	results, err := n.Reconcile(ctx, true, items)
	took := time.Since(begun)
	for _, r := range results {
		err = errors.Join(err, r.Err)
	}
	if len(results) != count {
		err = errors.Join(err, fmt.Errorf("%d results of %d", len(results), count))
	}
	return took, err
}

func rawRestore(count int, r *raw) (time.Duration, error) {
	begun := time.Now()
	r.listen()
	for i := range count {
		r.prepare(volume(i), devicePath(i))
	}
	for i := range count {
		r.link(volume(i))
	}
	return time.Since(begun), r.err()
}
