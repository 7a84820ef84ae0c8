package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// loseMarks restarts the agent without its fencing marks (B-160).
func (r *rig) loseMarks() {
	r.t.Helper()
	r.must(r.stop())
	r.must(os.RemoveAll(filepath.Join(r.dir, "state/generations")))
	r.start()
	r.open()
}

func (r *rig) remove(tok fencing.Token) error {
	return r.DeleteVolume(r.t.Context(), tok, storage.LVMLV, idA)
}

// wantThere wants volume a to be there, and whose it is.
func (r *rig) wantThere(owner storage.Owner) {
	r.t.Helper()
	if vol, err := r.mem.Inspect(r.t.Context(), "a"); err != nil || vol.Owner != owner || vol.Bytes != 8<<20 {
		r.t.Errorf("volume = %+v, %v, want it as it was, of %q", vol, err, owner)
	}
}

func (r *rig) wantGone() {
	r.t.Helper()
	if vol, err := r.mem.Inspect(r.t.Context(), "a"); !errors.Is(err, storage.ErrNotFound) {
		r.t.Errorf("volume = %+v, %v, want none", vol, err)
	}
}

// wantSpared wants one line that says so.
func (r *rig) wantSpared() {
	r.t.Helper()
	if n := r.log.FilterMessage("backend spared").Len(); n != 1 {
		r.t.Errorf("%d lines say that the backend is spared, want 1", n)
	}
}

// uidB is a lifecycle that never was here: a record restored from a backup, say.
var uidB = fencing.Token{UID: "uid-b", Generation: 3}

// N-52, B-122, B-217: what somebody made by hand is not removed, used or grown.
func TestAgent_madeByHand(t *testing.T) {
	tellEach(t, map[string]func(r *rig){
		"made by hand, the create never arrived": func(r *rig) {
			r.mem.Stranger("a", 8<<20)
			for range 2 {
				r.must(r.remove(token(2)))
			}
			r.wantThere("")
			r.wantSpared()
		},
		"made by hand, an unexport came first": func(r *rig) {
			r.mem.Stranger("a", 8<<20)
			r.must(r.UnexportVolume(r.t.Context(), token(2), storage.LVMLV, transport.NVMeTCP, idA))
			r.must(r.remove(token(2)))
			r.wantThere("")
			r.wantSpared()
		},
		"made by hand, never exported or grown": func(r *rig) {
			r.mem.Stranger("a", 8<<20)
			_, err := r.ExportVolume(r.t.Context(), token(2), storage.LVMLV, export(host1))
			results, _ := r.Reconcile(r.t.Context(), false, []agentrpc.Item{{Token: token(2), Backend: storage.LVMLV, Export: export(host1)}})
			for call, err := range map[string]error{"ExportVolume": err, "Reconcile": results[0].Err, "ExpandVolume": r.expand(2, idA, 16<<20)} {
				if !errors.Is(err, storage.ErrForeign) || agentrpc.CodeOf(err).String() != "FailedPrecondition" {
					r.t.Errorf("%s = %v, want ErrForeign", call, err)
				}
			}
			r.wantThere("")
		},
		"in place of what we made": func(r *rig) {
			r.create(1)
			r.must(r.mem.Delete(r.t.Context(), "a", ownerA))
			r.mem.Stranger("a", 8<<20)
			if err := r.remove(token(2)); !errors.Is(err, storage.ErrForeign) || agentrpc.CodeOf(err).String() != "FailedPrecondition" {
				r.t.Errorf("DeleteVolume = %v, want ErrForeign", err)
			}
			r.wantThere("")
		},
	})
}

// B-160: with the marks lost a volume is its lifecycle's, by what the backend says, and no
// other's.
func TestAgent_marksLost(t *testing.T) {
	tellEach(t, map[string]func(r *rig){
		"ours: delete": func(r *rig) {
			r.create(1)
			r.loseMarks()
			r.must(r.remove(token(9)))
			r.wantGone()
		},
		"ours: create, export, expand": func(r *rig) {
			r.create(1)
			r.loseMarks()
			r.create(2)
			_, err := r.ExportVolume(r.t.Context(), token(3), storage.LVMLV, export(host1))
			r.must(err)
			r.must(r.expand(4, idA, 8<<20))
			r.wantThere(ownerA)
		},
		"another's: delete": func(r *rig) {
			r.create(1)
			r.loseMarks()
			r.must(r.remove(uidB))
			r.wantThere(ownerA)
			r.wantSpared()
		},
		"another's: create, delete": func(r *rig) {
			r.create(1)
			r.loseMarks()
			_, err := r.CreateVolume(r.t.Context(), uidB, spec(5<<20))
			if !errors.Is(err, fencing.ErrForeign) || agentrpc.CodeOf(err).String() != "AlreadyExists" {
				r.t.Errorf("CreateVolume = %v, want ErrForeign", err)
			}
			r.must(r.remove(uidB))
			r.wantThere(ownerA)
		},
		"B-172 made again, with the marks": func(r *rig) {
			r.create(1)
			r.must(r.remove(token(2)))
			_, err := r.CreateVolume(r.t.Context(), uidB, spec(5<<20))
			r.must(err)
			r.wantThere("uid-b")
		},
	})
}

func tellEach(t *testing.T, stories map[string]func(r *rig)) {
	for name, test := range stories {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.open()
			test(r)
		})
	}
}
