package controller

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// installed is the namespace of the shipped manifests.
const installed = "pillar-csi-system"

// seen records requests to the API server and those it forbade.
type seen struct {
	next http.RoundTripper

	mu       sync.Mutex
	requests []string // "<method> <path>"
	refused  []string
}

func (s *seen) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.next.RoundTrip(req)
	s.mu.Lock()
	defer s.mu.Unlock()
	what := req.Method + " " + req.URL.Path
	s.requests = append(s.requests, what)
	if err == nil && resp.StatusCode == http.StatusForbidden {
		s.refused = append(s.refused, what)
	}
	return resp, err
}

// watched answers a configuration whose requests are recorded.
func watched(cfg *rest.Config) (*rest.Config, *seen) {
	cfg, s := rest.CopyConfig(cfg), &seen{}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.next == nil { // every client wraps anew; one transport serves them all
			s.next = next
		}
		return s
	})
	return cfg, s
}

// take answers the requests so far and forgets them.
func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// grant applies the shipped rbac.yaml and answers the controller's own configuration.
func (b *bench) grant() *rest.Config {
	b.t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "deploy", "kustomize", "base", "rbac.yaml"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: installed}})
	for docs := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
		obj := &unstructured.Unstructured{}
		if err := docs.Decode(obj); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			b.t.Fatal(err)
		}
		if !strings.HasPrefix(obj.GetKind(), "Cluster") {
			obj.SetNamespace(installed)
		}
		b.create(obj)
	}
	cfg := rest.CopyConfig(b.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + installed + ":pillar-csi-controller",
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
	}
	return cfg
}

// TestRun_rights takes the four kinds up and down with the rights the manifests give, and
// no more: nothing is refused, and Secrets are read one by one, by name, in pillar's own
// namespace (deploy.md 5).
func TestRun_rights(t *testing.T) {
	b := newBench(t)
	cfg, s := watched(b.grant())
	k := b.objects()
	chapped := &v1alpha1.PillarProtocol{ObjectMeta: metav1.ObjectMeta{Name: k.protocol.Name + "-chap"}, Spec: v1alpha1.PillarProtocolSpec{
		Protocol: v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{ACL: true, Auth: &v1alpha1.ISCSIAuth{Method: "CHAP", SecretRef: &v1alpha1.SecretRef{Name: "chap"}}}},
	}}
	b.createAll(k)
	b.create(chapped)
	b.runAs(cfg, Config{Namespace: installed})
	b.eventually(chapped, has(&chapped.Status.Conditions, "Ready", "False", "AuthSecretInvalid"))
	b.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: installed, Name: "chap"}, StringData: map[string]string{"username": "node", "password": "marker-secret"}})
	b.eventually(chapped, has(&chapped.Status.Conditions, "Ready", "True", "ProtocolConfigured"))
	b.eventually(k.class, has(&k.class.Status.Conditions, "Ready", "True", "AllConditionsMet"))
	for _, obj := range []client.Object{k.store, k.agent} {
		if err := b.api.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	b.takeDown(k, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: k.class.Name}})
	for _, r := range s.take() {
		if strings.Contains(r, "/secrets") && !strings.HasSuffix(r, "/namespaces/"+installed+"/secrets/chap") {
			t.Errorf("request %s, want only the one Secret by name", r)
		}
	}
	if len(s.refused) > 0 {
		t.Errorf("the manifests do not allow %v", s.refused)
	}
	b.noSecrets(cfg)
	b.wantEvents(k, chapped)
}

// createAll creates the node, with an address, and the four kinds.
func (b *bench) createAll(k kinds) {
	b.t.Helper()
	b.create(k.node)
	k.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	if err := b.api.Status().Update(b.t.Context(), k.node); err != nil {
		b.t.Fatal(err)
	}
	for _, obj := range []client.Object{k.agent, k.store, k.protocol, k.class} {
		b.create(obj)
	}
}

// noSecrets tries what the controller must not be able to do.
func (b *bench) noSecrets(cfg *rest.Config) {
	b.t.Helper()
	api, err := client.New(cfg, client.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	tries := map[string]error{
		"list in its namespace": api.List(b.t.Context(), &corev1.SecretList{}, client.InNamespace(installed)),
		"list everywhere":       api.List(b.t.Context(), &corev1.SecretList{}),
		"get elsewhere":         api.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: "chap"}, &corev1.Secret{}),
	}
	for what, err := range tries {
		if !apierrors.IsForbidden(err) {
			b.t.Errorf("Secrets, %s: %v, want Forbidden", what, err)
		}
	}
}

// wantEvents reads what TestRun_rights must have told about its objects.
func (b *bench) wantEvents(k kinds, chapped *v1alpha1.PillarProtocol) {
	b.t.Helper()
	for _, want := range []struct{ obj, kind, reason string }{
		{k.agent.Name, "Normal", "NodeFound"},
		{k.agent.Name, "Normal", "AllConditionsMet"},
		{k.store.Name, "Normal", "PoolDiscovered"},
		{chapped.Name, "Warning", "AuthSecretInvalid"},
		{k.class.Name, "Normal", "Created"},
	} {
		b.eventually(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, func() string { return b.untold(want.obj, want.kind, want.reason) })
	}
}

// untold says that there is no such event; it holds every note to B-9.
func (b *bench) untold(obj, kind, reason string) string {
	list := &eventsv1.EventList{}
	if err := b.api.List(b.t.Context(), list, client.InNamespace("default")); err != nil {
		return err.Error()
	}
	if i := slices.IndexFunc(list.Items, func(e eventsv1.Event) bool { return strings.Contains(e.Note, "marker") }); i >= 0 {
		b.t.Errorf("event %q shows a value", list.Items[i].Note)
	}
	if !slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
		return e.Regarding.Name == obj && e.Type == kind && e.Reason == reason && e.ReportingController == "pillar-csi"
	}) {
		return fmt.Sprintf("no event %s %s about %s", kind, reason, obj)
	}
	return ""
}

// TestRun_steady starts a second controller where everything is Ready: it looks at every
// object and writes none of them.
func TestRun_steady(t *testing.T) {
	b := newBench(t)
	k := b.objects()
	b.createAll(k)
	stop := b.runController()
	b.allReady(k)
	stop()
	all := []client.Object{k.node, k.agent, k.store, k.protocol, k.class}
	for _, obj := range all {
		b.eventually(obj, func() string { return "" })
	}
	cfg, s := watched(b.cfg)
	stop = b.run(cfg, 0)
	b.eventually(k.class, func() string {
		if !slices.Contains(s.take(), "GET /apis/storage.k8s.io/v1/storageclasses/"+k.class.Name) {
			return "the second controller has not looked at the class"
		}
		return ""
	})
	time.Sleep(time.Second) // for the other kinds: nothing shows a look that finds nothing
	stop()
	for _, obj := range all {
		was := obj.GetResourceVersion()
		b.eventually(obj, func() string { return "" })
		if now := obj.GetResourceVersion(); now != was {
			t.Errorf("%T was written: resourceVersion %s, was %s", obj, now, was)
		}
	}
	for _, r := range s.take() {
		if !strings.HasPrefix(r, "GET ") && slices.Contains(strings.Split(r, "/"), k.agent.Name) {
			t.Errorf("request %s where nothing changed", r)
		}
	}
}
