package controller

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/csiserve"
)

// TestLife is the worked example of block.md appendix F without its local attach: every
// write of the record, its generation, and what the agent was asked for with it.
func TestLife(t *testing.T) {
	b := newBench(t)
	w := b.watch()
	v := b.lived("pvc")
	for _, m := range []move{
		create, publish("w1", writer), publish("w1", writer), unpublish("w1"),
		publish("w2", writer), grow(2 << 30), unpublish("w2"),
	} {
		b.persist(v, m)
		w.redeliver("after a step")
	}
	crashed := b.rival(func(req *http.Request) error {
		if req.Method == http.MethodDelete {
			return errors.New("the controller is gone")
		}
		return nil
	})
	wantCode(t, "delete that a crash cuts off", remove(crashed, v), csiserve.Internal, "the controller is gone")
	b.persist(v, remove)
	b.persist(v, create)
	w.redeliver("in the next life")
	w.settle()
	want := `
g0 Provisioning
g1 Provisioning: CreateVolume
g2 CreatePartial: ExportVolume
g2 Ready
g3 Ready, w1: AllowInitiator w1, AllowInitiator w1
g4 Ready, w1 revoking: DenyInitiator w1
g5 Ready
g6 Ready, w2: AllowInitiator w2
g7 Ready, w2: ExpandVolume
g8 Ready, w2 revoking: DenyInitiator w2
g9 Ready
g10 Ready, deleting: UnexportVolume, DeleteVolume, UnexportVolume, DeleteVolume
g0 Provisioning
g1 Provisioning: CreateVolume
g2 CreatePartial: ExportVolume
g2 Ready
`
	if diff := cmp.Diff(strings.TrimSpace(want), strings.Join(w.story(v), "\n")); diff != "" {
		t.Errorf("story of a volume (-want +got):\n%s", diff)
	}
	w.verdict()
}

// story tells the lives of a volume: one line for each version of its record that differs
// in what matters, with what the agent was asked for with the generation's token.
func (w *witness) story(v lived) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var story []string
	for _, uid := range w.lives {
		line, generation := "", int64(0)
		for _, version := range w.versions[uid] {
			if version.Name != v.create.Name {
				continue
			}
			now := w.line(version)
			if now == line {
				continue
			}
			line = now
			if calls := w.calls(ledger.Token(version)); version.Status.PublicationGeneration != generation && len(calls) > 0 {
				now += ": " + strings.Join(calls, ", ")
			}
			generation = version.Status.PublicationGeneration
			story = append(story, now)
		}
	}
	return story
}

func (w *witness) line(v *v1alpha1.PillarVolumeState) string {
	line := fmt.Sprintf("g%d %s", v.Status.PublicationGeneration, ledger.Phase(v))
	for _, p := range v.Status.PublishedNodes {
		line += ", " + strings.TrimPrefix(p.NodeID, w.b.name)
		if p.Revoking {
			line += " revoking"
		}
	}
	if v.Status.Deleting {
		line += ", deleting"
	}
	return line
}

// calls are the requests with a token, in the order they arrived.
func (w *witness) calls(tok fencing.Token) []string {
	var calls []string
	for _, r := range w.requests {
		if r.tok != tok {
			continue
		}
		call := r.rpc
		if i, ok := r.msg.(interface{ GetInitiatorId() string }); ok {
			_, node, _ := strings.Cut(i.GetInitiatorId(), ":uuid:"+w.b.name)
			call += " " + node
		}
		calls = append(calls, call)
	}
	return calls
}
