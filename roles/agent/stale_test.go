package agent

import (
	"context"
	"errors"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// fenced are the calls that change something under a token. Each gets a request that would
// succeed with a token of the present, and one that changes the volume if it ran.
func fenced(r *rig, ctx context.Context) map[string]func(tok fencing.Token) error {
	return map[string]func(tok fencing.Token) error{
		"CreateVolume": func(tok fencing.Token) error { return second(r.CreateVolume(ctx, tok, spec(5<<20))) },
		"ExpandVolume": func(tok fencing.Token) error {
			return second(r.ExpandVolume(ctx, tok, storage.LVMLV, transport.NVMeTCP, idA, 16<<20))
		},
		"DeleteVolume": func(tok fencing.Token) error { return r.DeleteVolume(ctx, tok, storage.LVMLV, idA) },
		"ExportVolume": func(tok fencing.Token) error { return second(r.ExportVolume(ctx, tok, storage.LVMLV, export())) },
		"UnexportVolume": func(tok fencing.Token) error {
			return r.UnexportVolume(ctx, tok, storage.LVMLV, transport.NVMeTCP, idA)
		},
		"AllowInitiator": func(tok fencing.Token) error {
			return r.AllowInitiator(ctx, tok, storage.LVMLV, transport.NVMeTCP, idA, host2, true)
		},
		"DenyInitiator": func(tok fencing.Token) error {
			return r.DenyInitiator(ctx, tok, storage.LVMLV, transport.NVMeTCP, idA, host1)
		},
		"ReconcileState": func(tok fencing.Token) error { return r.reconcile(ctx, false, tok) },
	}
}

const host2 = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000002"

func (r *rig) reconcile(ctx context.Context, complete bool, tok fencing.Token) error {
	results, err := r.Reconcile(ctx, complete, []agentrpc.Item{{Token: tok, Backend: storage.LVMLV, Export: export(host2)}})
	if err == nil {
		err = results[0].Err
	}
	return err
}

// unfenced are the others (block.md B-150): reads, and calls with another authority.
var unfenced = []string{"HealthCheck", "GetCapabilities", "GetCapacity", "ListVolumes", "ListExports", "InspectVolume", "InspectImport",
	"TransferOwnership", "Drain"}

// notOffered have no handler yet. The first that gets one belongs into the table above.
var notOffered = []string{"ImportVolume", "ReleaseVolume", "SetLocalAttach"}

// N-3, N-4, N-10: a controller of the past is refused by every call that changes something,
// and changes nothing.
func TestAgent_staleController(t *testing.T) {
	stale := map[string]struct {
		tok  fencing.Token
		want fencing.Decision
	}{
		"older generation":       {token(5), fencing.RejectSuperseded},
		"another lifecycle":      {fencing.Token{UID: "uid-b", Generation: 99}, fencing.RejectOtherOwner},
		"a lifecycle that ended": {fencing.Token{UID: "uid-old", Generation: 99}, fencing.RejectRetired},
		"no lifecycle":           {fencing.Token{Generation: 99}, fencing.RejectMissingToken},
		"no generation":          {fencing.Token{UID: "uid-a"}, fencing.RejectMissingToken},
	}
	r := newRig(t)
	r.secondLife()
	calls := fenced(r, t.Context())
	calls["ReconcileState, complete"] = func(tok fencing.Token) error { return r.reconcile(t.Context(), true, tok) }
	for who, s := range stale {
		for rpc, call := range calls {
			t.Run(rpc+" of "+who, func(t *testing.T) {
				var rejection *fencing.Rejection
				err := call(s.tok)
				if !errors.As(err, &rejection) || rejection.Decision != s.want || agentrpc.CodeOf(err).String() != "FailedPrecondition" {
					t.Errorf("%s with token %s = %v, want %s", rpc, s.tok, err, s.want)
				}
				if trace := r.kernel.Trace(); len(trace) > 0 {
					t.Errorf("kernel saw %v, want nothing", trace)
				}
				r.wantThere(ownerA)
				r.wantMark()
			})
		}
	}
}

// secondLife has volume a made, deleted, and made again by uid-a, exported to host1.
func (r *rig) secondLife() {
	r.t.Helper()
	ctx, old := r.t.Context(), fencing.Token{UID: "uid-old", Generation: 7}
	r.open()
	r.must(second(r.CreateVolume(ctx, old, spec(5<<20))))
	r.must(r.DeleteVolume(ctx, old, storage.LVMLV, idA))
	r.create(5)
	r.must(second(r.ExportVolume(ctx, token(6), storage.LVMLV, export(host1))))
	r.kernel.Trace()
}

func (r *rig) wantMark() {
	r.t.Helper()
	marks, err := fencing.Open(r.dir + "/state/generations")
	r.must(err)
	got, err := marks.Mark(idA.String())
	want := &fencing.Mark{SchemaVersion: 1, Volume: idA.String(), Owner: "uid-a", Generation: 6, Origin: fencing.Created,
		Retired: []fencing.Retired{{UID: "uid-old", Ended: fencing.Deleted}}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		r.t.Errorf("mark = %v (-want +got):\n%s", err, diff)
	}
}

// Every call of the service stands in one of the lists; what has no handler says so.
func TestAgent_everyCallIsFencedOrNot(t *testing.T) {
	known := map[string]bool{}
	for name := range fenced(nil, nil) {
		known[name] = true
	}
	for _, name := range append(unfenced, notOffered...) {
		known[name] = true
	}
	for _, m := range agentpb.AgentService_ServiceDesc.Methods {
		if !known[m.MethodName] {
			t.Errorf("%s: is it fenced? It stands in no list of this test", m.MethodName)
		}
	}
	for _, s := range agentpb.AgentService_ServiceDesc.Streams {
		if !known[s.StreamName] {
			t.Errorf("%s: is it fenced? It stands in no list of this test", s.StreamName)
		}
	}
	for _, name := range notOffered {
		method := reflect.ValueOf(&server{}).MethodByName(name)
		out := method.Call([]reflect.Value{reflect.ValueOf(t.Context()), reflect.New(method.Type().In(1).Elem())})
		if err, _ := out[1].Interface().(error); agentrpc.CodeOf(err).String() != "Unimplemented" {
			t.Errorf("%s = %v: it has a handler now, add it to the fenced calls", name, err)
		}
	}
}
