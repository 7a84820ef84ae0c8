package reconcile

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/apiservertest"
)

func TestMain(m *testing.M) { os.Exit(apiservertest.Main(m)) }

// bench calls reconcilers one step at a time on a real API server. Their cache is the API
// server itself, so that a test decides what they see and when.
type bench struct {
	kube
	t    *testing.T
	api  client.Client // the test's own, which wire does not see
	wire *wire
	told *events.FakeRecorder
	name string // of this test's objects
}

var benches atomic.Int32

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	cfg, scheme := apiservertest.Config(t), runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, wire: &wire{}, told: events.NewFakeRecorder(1000), name: fmt.Sprintf("r%d", benches.Add(1))}
	var err error
	if b.api, err = client.New(cfg, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { b.wire.next = next; return b.wire })
	seen, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	b.kube = kube{seen, seen, b.told, "default"}
	return b
}

// wire counts the writes of a reconciler and may lose one: its request, or its answer.
type wire struct {
	next   http.RoundTripper
	before func(write string) // not nil: called before each write

	mu     sync.Mutex
	writes []string
	lose   int  // the write to lose, counted from 1; all later ones fail, too
	done   bool // the lost write reaches the server
}

var errLost = errors.New("connection lost")

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet {
		return w.next.RoundTrip(req)
	}
	if w.before != nil {
		w.before(req.Method + " " + req.URL.Path)
	}
	w.mu.Lock()
	w.writes = append(w.writes, req.Method+" "+req.URL.Path)
	n, lose, done := len(w.writes), w.lose, w.done
	w.mu.Unlock()
	if lose == 0 || n < lose {
		return w.next.RoundTrip(req)
	}
	if n == lose && done {
		if resp, err := w.next.RoundTrip(req); err == nil {
			resp.Body.Close()
		}
	}
	return nil, errLost
}

// take answers the writes since the last take and loses none from now on.
func (w *wire) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	writes := w.writes
	w.writes, w.lose = nil, 0
	return writes
}

// crashAt loses the nth write from now, or only its answer, and all after it.
func (w *wire) crashAt(n int, done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes, w.lose, w.done = nil, n, done
}

// create puts an object on the API server, with its status.
func (b *bench) create(obj client.Object) {
	b.t.Helper()
	want := obj.DeepCopyObject().(client.Object)
	if err := b.api.Create(b.t.Context(), obj); err != nil {
		b.t.Fatalf("create %T %s: %v", obj, obj.GetName(), err)
	}
	want.SetResourceVersion(obj.GetResourceVersion())
	want.SetUID(obj.GetUID())
	err := b.api.Status().Update(b.t.Context(), want)
	if client.IgnoreNotFound(err) != nil { // not every kind has a status
		b.t.Fatalf("status of %T %s: %v", obj, obj.GetName(), err)
	}
	obj.SetResourceVersion(want.GetResourceVersion())
}

// run reconciles the bench's object once and fails on an error.
func (b *bench) run(r reconcile.Reconciler) ctrl.Result {
	b.t.Helper()
	result, err := r.Reconcile(b.t.Context(), b.request())
	if err != nil {
		b.t.Fatalf("reconcile %T: %v", r, err)
	}
	return result
}

func (b *bench) request() ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: b.name}}
}

func (b *bench) get(obj client.Object, name string) {
	b.t.Helper()
	if err := b.api.Get(b.t.Context(), client.ObjectKey{Namespace: obj.GetNamespace(), Name: name}, obj); err != nil {
		b.t.Fatal(err)
	}
}

// edit changes an object as a user does.
func (b *bench) edit(obj client.Object, change func()) {
	b.t.Helper()
	b.get(obj, obj.GetName())
	old := obj.DeepCopyObject().(client.Object)
	change()
	if err := b.api.Patch(b.t.Context(), obj, client.MergeFrom(old)); err != nil {
		b.t.Fatalf("edit %T: %v", obj, err)
	}
}

// ready makes a store or protocol Ready; conditions are the object's own.
func (b *bench) ready(obj client.Object, conditions *[]metav1.Condition) {
	b.t.Helper()
	b.setReady(obj, conditions, met(v1alpha1.Ready))
}

// unready does the opposite.
func (b *bench) unready(obj client.Object, conditions *[]metav1.Condition, why string) {
	b.t.Helper()
	c := met(v1alpha1.Ready)
	c.Status, c.Message = metav1.ConditionFalse, why
	b.setReady(obj, conditions, c)
}

func (b *bench) setReady(obj client.Object, conditions *[]metav1.Condition, c metav1.Condition) {
	b.t.Helper()
	b.get(obj, obj.GetName())
	*conditions = []metav1.Condition{c}
	if err := b.api.Status().Update(b.t.Context(), obj); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) gone(obj client.Object) bool {
	b.t.Helper()
	err := b.api.Get(b.t.Context(), client.ObjectKey{Name: obj.GetName(), Namespace: obj.GetNamespace()}, obj)
	if client.IgnoreNotFound(err) != nil {
		b.t.Fatal(err)
	}
	return err != nil
}

// delete asks for the deletion of an object.
func (b *bench) delete(obj client.Object) {
	b.t.Helper()
	if err := b.api.Delete(b.t.Context(), obj); err != nil {
		b.t.Fatal(err)
	}
}

// heard answers what was told since the last call, as "<type> <reason> <note>".
func (b *bench) heard() (all []string) {
	for {
		select {
		case e := <-b.told.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// shown is a condition as tests compare it: "<status>/<reason>".
func shown(conditions []metav1.Condition, kind string) string {
	c := meta.FindStatusCondition(conditions, kind)
	if c == nil {
		return "absent"
	}
	return string(c.Status) + "/" + c.Reason
}

func message(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// met is a condition that is true for the sake of a test.
func met(kind string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now()}
}
