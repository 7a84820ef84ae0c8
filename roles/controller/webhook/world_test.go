package webhook

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/apiservertest"
)

// mine is the label of objects a test's webhooks see: other tests share the API server.
const mine = "webhook-test"

var worlds atomic.Int64

// world is an API server with the configurations of deploy/kustomize/base under a name of
// its own, pointing at a local port.
type world struct {
	api client.Client
	cfg Config
}

func newWorld(t *testing.T) world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	api, err := client.New(apiservertest.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	w := world{api: api, cfg: Config{
		Port: freePort(t), Host: "127.0.0.1", Name: fmt.Sprintf("world-%d", worlds.Add(1)), Namespace: "default",
	}}
	for _, obj := range w.configurations(t) {
		if err := api.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { api.Delete(context.Background(), obj) })
	}
	return w
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// configurations reads the shipped ones and points them here.
func (w world) configurations(t *testing.T) []client.Object {
	t.Helper()
	data, err := os.ReadFile("../../../deploy/kustomize/base/webhook.yaml")
	if err != nil {
		t.Fatal(err)
	}
	validating, mutating := &admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}
	for _, document := range strings.Split(string(data), "\n---\n") {
		for kind, obj := range map[string]any{"ValidatingWebhookConfiguration": validating, "MutatingWebhookConfiguration": mutating} {
			if !strings.Contains(document, "\nkind: "+kind+"\n") {
				continue
			}
			if err := yaml.UnmarshalStrict([]byte(document), obj); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
		}
	}
	validating.Name, mutating.Name = w.cfg.Name, w.cfg.Name
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{mine: w.cfg.Name}}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ObjectSelector = selector
	}
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ObjectSelector = selector
	}
	for _, configuration := range []client.Object{validating, mutating} {
		for _, c := range clients(configuration) {
			url := fmt.Sprintf("https://%s%s", net.JoinHostPort(w.cfg.Host, fmt.Sprint(w.cfg.Port)), *c.Service.Path)
			c.Service, c.URL = nil, &url
		}
	}
	return []client.Object{validating, mutating}
}

// object is one this world's webhooks see.
func (w world) object(t *testing.T, kind, spec string) client.Object {
	obj := object(t, kind, spec)
	obj.SetLabels(map[string]string{mine: w.cfg.Name})
	return obj
}

// create puts an object on the API server until the test ends.
func (w world) create(t *testing.T, obj client.Object) {
	t.Helper()
	if err := w.api.Create(t.Context(), obj); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.api.Delete(context.Background(), obj) })
}
