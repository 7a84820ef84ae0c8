package controller

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/reconcile"
	"github.com/pillar-csi/pillar/roles/controller/settings"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
)

// nevers are the rows of block.md 11 that the controller owns and that neither a crash nor
// a race is needed for (TestCrash, TestRace); N-21 is TestReaper, N-42 TestResync_specMissing.
// Each runs under a witness.
var nevers = map[string]func(b *bench, w *witness, v lived){
	"N-14 two volumes of one target name":      neverOneTarget,
	"N-20 success before Ready is durable":     neverEarlySuccess,
	"N-22 a retry asks for something else":     neverAnotherVolume,
	"N-23 a failed export costs the backend":   neverRollBack,
	"N-24 a missing agent proves something":    neverProvenByAbsence,
	"N-24 settings are needed after creation":  neverSettingsAgain,
	"N-24 a missing setting is made up":        neverDefaulted,
	"N-41 a lost revoke frees the volume":      neverFreed,
	"N-46 a backend becomes smaller":           neverSmaller,
	"N-51 a delete that stopped half way":      neverHalfDeleted,
	"N-52 a refused create destroys a backend": neverForeign,
}

func TestNever(t *testing.T) {
	for name, never := range nevers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			w := b.watch()
			never(b, w, b.lived("pvc"))
			w.verdict()
		})
	}
}

// volumeNamed is a volume with exactly that name; what follows "pvc-" is its claim's UID.
func (b *bench) volumeNamed(name string) lived {
	v := b.lived("")
	v.create.Name, v.id = name, v.id[:strings.LastIndex(v.id, "/")+1]+name
	return v
}

// inGroup is a volume of a hand-written class with a volume group of its own.
func (b *bench) inGroup(name, group string) lived {
	b.create(&v1alpha1.PillarStore{ObjectMeta: metav1.ObjectMeta{Name: b.name + "-" + group}, Spec: v1alpha1.PillarStoreSpec{
		AgentRef: b.name, Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: group}},
	}})
	v := b.volumeNamed(name)
	v.create.Parameters = map[string]string{v1alpha1.StoreRefKey: b.name + "-" + group, v1alpha1.ProtocolRefKey: b.name}
	v.id = strings.Replace(v.id, "/vg0/", "/"+group+"/", 1)
	return v
}

// vanish deletes the object and does what the cluster's own controllers would, which do not
// run here: they take the finalizers of claims and volumes away.
func (b *bench) vanish(obj client.Object) {
	b.t.Helper()
	if err := b.api.Delete(b.t.Context(), obj); err != nil {
		b.t.Fatal(err)
	}
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := b.api.Patch(b.t.Context(), obj, free); client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	b.gone(obj)
}

// neverOneTarget: a/b.c and a.b/c would share the target a.b.c (B-23).
func neverOneTarget(b *bench, _ *witness, _ lived) {
	first := b.inGroup("b."+b.name, "a")
	second := b.inGroup(b.name, "a.b")
	b.persist(first, create)
	had := b.agent.picture()
	b.agent.take()
	wantCode(b.t, "create of the second", create(b, second), csiserve.AlreadyExists, "would share target name")
	wantCode(b.t, "delete of the second", remove(b, second), 0, "")
	wantCalls(b.t, b.agent)
	if diff := cmp.Diff(had, b.agent.picture()); diff != "" {
		b.t.Errorf("the first volume (-want +got):\n%s", diff)
	}
}

// neverEarlySuccess loses the last write of create, or only its answer.
func neverEarlySuccess(b *bench, w *witness, _ lived) {
	v, writes := b.volumeNamed("pvc-"+uuid.NewString()), 0
	cut := b.rival(func(req *http.Request) error {
		if req.Method == http.MethodPut {
			writes++
		}
		if writes == 3 { // attempt, partial, Ready
			return errors.New("connection reset")
		}
		return nil
	})
	wantCode(b.t, "create whose last write is lost", create(cut, v), csiserve.Internal, "connection reset")
	if s := b.state(v.create.Name).Status; s.Phase != v1alpha1.PhaseCreatePartial {
		b.t.Errorf("phase = %s, want CreatePartial", s.Phase)
	}
	wantReaped(b, v, reconcile.Reaped)
	if left := b.agent.picture(); len(left) > 0 || b.state(v.create.Name) != nil {
		b.t.Errorf("left after the reaper: %v", left)
	}
	b.persist(v, create)
	wantReaped(b, v, "") // Ready: nobody knows whether success was reported
	w.redeliver("after the reaper")
}

// wantReaped has the reaper look at the volume an hour later.
func wantReaped(b *bench, v lived, want reconcile.Outcome) {
	b.t.Helper()
	got, err := b.nextHour().Look(b.t.Context(), v.create.Name)
	if got != want || (err != nil) != (want == reconcile.ReapFailed) {
		b.t.Errorf("reaper = %q, %v, want %q", got, err, want)
	}
}

// nextHour is a reaper that has let every grace pass.
func (b *bench) nextHour() *reconcile.Reaper { return lateReaper(b.api, b.Server) }

func lateReaper(api client.Client, s *Server) *reconcile.Reaper {
	later := func() time.Time { return time.Now().Add(time.Hour) }
	return reconcile.NewReaper(api, api, events.NewFakeRecorder(100), later, s.Reap)
}

// neverAnotherVolume changes class, store and protocol between the attempts of a create.
func neverAnotherVolume(b *bench, w *witness, v lived) {
	w.losing("CreateVolume")
	wantCode(b.t, "create", create(b, v), csiserve.Unavailable, "on its way")
	psc := &v1alpha1.PillarStorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	store := &v1alpha1.PillarStore{ObjectMeta: metav1.ObjectMeta{Name: b.name}}
	for _, obj := range []client.Object{psc, store} {
		b.vanish(obj)
	}
	b.create(&v1alpha1.PillarStore{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarStoreSpec{
		AgentRef: b.name, Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: "vg1"}},
	}})
	b.create(&v1alpha1.PillarStorageClass{ObjectMeta: metav1.ObjectMeta{Name: b.name}, Spec: v1alpha1.PillarStorageClassSpec{StoreRef: b.name, ProtocolRef: b.name}})
	w.losing("ExportVolume")
	wantCode(b.t, "create after the class changed", create(b, v), csiserve.Unavailable, "on its way")
	w.losing()
	b.persist(v, create)
	if volumes, _, made := b.agent.have(); made != 1 || !slices.Equal(volumes, []string{"vg0/" + v.create.Name}) {
		b.t.Errorf("the agent made %d: %v, want one in vg0", made, volumes)
	}
	w.redeliver("after the retries")
}

// neverRollBack refuses the export over and over.
func neverRollBack(b *bench, w *witness, v lived) {
	b.agent.set(func(a *fakeAgent) {
		a.fail["ExportVolume"] = fmt.Errorf("param_inline_data_size is 4096: %w", transport.ErrPrecondition)
	})
	for range 3 {
		wantCode(b.t, "create", create(b, v), csiserve.FailedPrecondition, "param_inline_data_size")
		if p := b.state(v.create.Name).Status.PartialFailure; p == nil || p.FailedOperation != "ExportVolume" || !p.BackendCreated || p.ExportCreated {
			b.t.Errorf("partial failure = %+v", p)
		}
	}
	b.agent.set(func(a *fakeAgent) { delete(a.fail, "ExportVolume") })
	b.persist(v, create)
	if n, gone := w.count("CreateVolume"), w.count("DeleteVolume"); n != 1 || gone != 0 {
		b.t.Errorf("backend was asked for %d times and deleted %d times, want 1 and 0", n, gone)
	}
}

// neverProvenByAbsence deletes the PillarAgent under a published volume.
func neverProvenByAbsence(b *bench, _ *witness, v lived) {
	b.persist(v, create)
	b.persist(v, publish("w1", writer))
	had := b.agent.picture()
	b.agent.take()
	b.vanish(&v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: b.name}})
	gone := fmt.Sprintf("PillarAgent %q", b.name)
	wantCode(b.t, "publish", b.publish(v.id, "w1", writer), csiserve.NotFound, gone)
	wantCode(b.t, "expand", b.expand(v.id, 2<<30), csiserve.NotFound, gone)
	wantCode(b.t, "delete", remove(b, v), csiserve.FailedPrecondition, "published")
	wantCode(b.t, "unpublish", unpublishAll(b, v), csiserve.FailedPrecondition, gone)
	wantCode(b.t, "publish elsewhere", b.publish(v.id, "w2", writer), csiserve.NotFound, gone)
	if p := b.state(v.create.Name).Status.PublishedNodes; len(p) != 1 || !p[0].Revoking {
		b.t.Errorf("publications = %+v, want w1 revoking", p)
	}
	other := b.lived("pvc-other")
	wantCode(b.t, "create", create(b, other), csiserve.FailedPrecondition, gone)
	if diff := cmp.Diff(had, b.agent.picture()); diff != "" || b.state(other.create.Name) != nil {
		b.t.Errorf("the agent (-want +got):\n%s", diff)
	}
	wantCalls(b.t, b.agent)
}

// neverSettingsAgain: a volume lives from its record when all that made it is gone.
func neverSettingsAgain(b *bench, _ *witness, v lived) {
	pvc := b.claim(b.name+"claim", nil)
	v.create.Parameters[settings.PVCNameKey], v.create.Parameters[settings.PVCNamespaceKey] = pvc.Name, pvc.Namespace
	b.persist(v, create)
	o := metav1.ObjectMeta{Name: b.name}
	for _, obj := range []client.Object{
		pvc, &v1alpha1.PillarStorageClass{ObjectMeta: o}, &v1alpha1.PillarStore{ObjectMeta: o}, &v1alpha1.PillarProtocol{ObjectMeta: o},
	} {
		b.vanish(obj)
	}
	b.persist(v, create)
	b.persist(v, publish("w1", writer))
	b.persist(v, grow(2<<30))
	b.vanish(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: v.node}})
	b.persist(v, unpublish("w1"))
	b.persist(v, remove)
	if left := b.agent.picture(); len(left) > 0 {
		b.t.Errorf("left on the agent: %v", left)
	}
}

// neverDefaulted deletes what a create names before it.
func neverDefaulted(b *bench, _ *witness, v lived) {
	pvc := b.claim(b.name+"claim", nil)
	v.create.Parameters[settings.PVCNameKey], v.create.Parameters[settings.PVCNamespaceKey] = pvc.Name, pvc.Namespace
	o := metav1.ObjectMeta{Name: b.name}
	for _, obj := range []client.Object{ // in the order they are read, backwards
		pvc, &v1alpha1.PillarProtocol{ObjectMeta: o}, &v1alpha1.PillarStore{ObjectMeta: o}, &v1alpha1.PillarStorageClass{ObjectMeta: o},
	} {
		b.vanish(obj)
		wantCode(b.t, fmt.Sprintf("create without %T", obj), create(b, v), csiserve.FailedPrecondition, ") not found")
	}
	if state := b.state(v.create.Name); state != nil {
		b.t.Errorf("a record was made: %+v", state.Spec)
	}
	wantCalls(b.t, b.agent)
}

// neverFreed loses the revoke: the agent is down, then away.
func neverFreed(b *bench, w *witness, v lived) {
	b.persist(v, create)
	b.persist(v, publish("w1", writer))
	b.agent.stop()
	wantCode(b.t, "unpublish", unpublishAll(b, v), csiserve.Unavailable, "")
	b.agent.serve(b.t)
	w.losing("DenyInitiator")
	b.eventually(b.state(v.create.Name), func() string {
		err := unpublishAll(b, v)
		if csiserve.CodeOf(err) == csiserve.Unavailable && strings.Contains(err.Error(), "on its way") {
			return ""
		}
		return fmt.Sprintf("unpublish = %v", err)
	})
	wantCode(b.t, "publish elsewhere", b.publish(v.id, "w2", writer), csiserve.FailedPrecondition, "is published to another node")
	wantCode(b.t, "delete", remove(b, v), csiserve.FailedPrecondition, "published")
	w.losing()
	b.persist(v, unpublishAll)
	b.persist(v, publish("w2", writer))
	w.redeliver("after the revoke")
}

// neverSmaller asks for every size a volume could shrink to.
func neverSmaller(b *bench, w *witness, v lived) {
	v.create.CapacityRange.RequiredBytes = 3*extent - 1
	b.persist(v, create)
	b.persist(v, grow(3*extent-2)) // rounds to what it has
	wantCode(b.t, "smaller", b.expand(v.id, extent), csiserve.OutOfRange, "cannot shrink")
	b.persist(v, grow(5*extent))
	w.losing("ExpandVolume")
	wantCode(b.t, "smaller, delayed", b.expand(v.id, 3*extent), csiserve.Unavailable, "on its way")
	w.losing()
	b.persist(v, grow(5*extent))
	b.persist(v, create) // its claim asked for less, long ago
	v.create.CapacityRange.RequiredBytes = 6 * extent
	wantCode(b.t, "create, larger", create(b, v), csiserve.AlreadyExists, "")
	v.create.CapacityRange.RequiredBytes, v.create.CapacityRange.LimitBytes = extent, 2*extent
	wantCode(b.t, "create, smaller", create(b, v), csiserve.AlreadyExists, "")
	w.redeliver("after every size")
	if got, want := b.state(v.create.Name).Status.CapacityBytes, int64(5*extent); got != want {
		b.t.Errorf("recorded size = %d, want %d", got, want)
	}
}

// neverHalfDeleted stops a delete after the agent's and before the record's, then after
// the record was marked. The agent would refuse any generation but the first.
func neverHalfDeleted(b *bench, w *witness, v lived) {
	b.persist(v, create)
	for _, method := range []string{http.MethodDelete, http.MethodPut} { // the mark, the finalizer
		cut := b.rival(func(req *http.Request) error {
			if req.Method == method && !strings.HasSuffix(req.URL.Path, "/status") {
				return errors.New("connection reset")
			}
			return nil
		})
		wantCode(b.t, "delete that loses its "+method, remove(cut, v), csiserve.Internal, "connection reset")
	}
	wantCode(b.t, "create meanwhile", create(b, v), csiserve.Aborted, "is being deleted")
	b.persist(v, remove)
	first := v
	b.persist(v, create)
	b.persist(v, publish("w1", writer))
	w.redeliver("in the next life")
	wantCode(b.t, "delete of the successor", remove(b, first), csiserve.FailedPrecondition, "published")
}

// neverForeign finds somebody else's volume under the name, of the same size and another.
func neverForeign(b *bench, w *witness, _ lived) {
	v := b.volumeNamed("pvc-" + uuid.NewString())
	for _, bytes := range []int64{1 << 30, 5 << 20} {
		b.agent.set(func(a *fakeAgent) { a.volumes["vg0/"+v.create.Name] = bytes })
		for range 2 {
			if err := create(b, v); csiserve.CodeOf(err) != csiserve.AlreadyExists {
				b.t.Errorf("create over a volume of %d bytes = %v, want AlreadyExists", bytes, err)
			}
		}
		wantReaped(b, v, reconcile.Reaped)
		w.redeliver("after the refused create")
		if got, want := b.agent.picture()["vg0/"+v.create.Name], fmt.Sprint(bytes); got != want {
			b.t.Errorf("the foreign volume is %q, want %q", got, want)
		}
	}
}
