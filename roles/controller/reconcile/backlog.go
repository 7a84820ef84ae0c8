package reconcile

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// backlog is what is to be done for one agent. Nothing of it has to survive: a new process
// begins with everything due.
type backlog struct {
	standing
	attempt attempt
	passed  time.Time            // when everything was made due
	due     map[string]time.Time // volume -> when to send it
	retries map[string]retry     // volume that failed last
	told    []outcome            // not in the records yet
}

// attempt is the last complete request.
type attempt struct {
	opened time.Time // the gate
	failed string    // why it did not
	wait   time.Duration
	next   time.Time // not again before
}

type retry struct {
	wait  time.Duration
	fresh bool // read from the API server: the cache was late
}

func newBacklog() *backlog {
	return &backlog{due: map[string]time.Time{}, retries: map[string]retry{}}
}

// found notes how the agent is now. One that was lost or moved begins anew, and whenever
// it can be served again, or its object changed, everything is due.
func (b *backlog) found(s standing) (failed string) {
	if s.gated && s.asked.Before(b.attempt.opened) {
		s.gated = false // answered before the gate opened
	}
	switch {
	case s.client != b.client:
		*b = *newBacklog()
	case b.gated && !s.gated, b.object != s.object:
		b.passed = time.Time{}
	}
	b.standing = s
	if !s.gated {
		return ""
	}
	return b.attempt.failed
}

// restored notes what became of a complete request, which speaks for every volume: what is
// not written yet of an earlier one is out of date.
func (b *backlog) restored(now time.Time, open bool, failed string, outcomes []outcome) {
	b.attempted(now, open, failed)
	if len(outcomes) > 0 {
		b.told = nil
	}
	b.settled(now, outcomes)
}

// attempted notes whether a complete request opened the gate.
func (b *backlog) attempted(now time.Time, open bool, failed string) {
	if open {
		b.gated, b.passed, b.attempt = false, now, attempt{opened: now}
		return
	}
	wait := longer(b.attempt.wait)
	b.attempt = attempt{failed: failed, wait: wait, next: now.Add(wait)}
}

// longer is the next of the growing pauses between attempts.
func longer(wait time.Duration) time.Duration { return min(max(2*wait, leastWait), mostWait) }

// schedule makes a volume due, unless it is so sooner.
func (b *backlog) schedule(volume string, at time.Time) {
	if have, ok := b.due[volume]; !ok || at.Before(have) {
		b.due[volume] = at
	}
}

// take answers up to one batch of what is due. What became due last goes first: the
// volume that changed before those of a pass.
func (b *backlog) take(now time.Time) []string {
	var volumes []string
	for volume, at := range b.due {
		if !at.After(now) {
			volumes = append(volumes, volume)
		}
	}
	slices.SortFunc(volumes, func(x, y string) int {
		return cmp.Or(b.due[y].Compare(b.due[x]), cmp.Compare(x, y))
	})
	volumes = volumes[:min(len(volumes), batch)]
	for _, volume := range volumes {
		delete(b.due, volume)
	}
	return volumes
}

// settled notes outcomes, to be written, and when to try again what failed. A missing
// exportSpec needs a human.
func (b *backlog) settled(now time.Time, outcomes []outcome) {
	b.told = append(b.told, outcomes...)
	for _, o := range outcomes {
		switch o.reason {
		case v1alpha1.ReasonReconciled, v1alpha1.ReasonExportSpecMissing:
			delete(b.retries, o.volume.Name)
		default:
			wait := longer(b.retries[o.volume.Name].wait)
			b.retries[o.volume.Name] = retry{wait, o.reason == v1alpha1.ReasonStaleGeneration}
			b.schedule(o.volume.Name, now.Add(wait))
		}
	}
}

// next is how long nothing is to be done.
func (b *backlog) next(now time.Time, period time.Duration, wrote int) time.Duration {
	if wrote >= batch {
		return settle
	}
	at := b.attempt.next
	if !b.gated {
		at = b.passed.Add(period)
		for due := range maps.Values(b.due) {
			if due.Before(at) {
				at = due
			}
		}
	}
	return max(at.Sub(now), time.Millisecond)
}
