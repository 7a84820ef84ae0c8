package webhook

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pillar-csi/pillar/roles/controller/apiservertest"
)

// TestKeeper_Rights: the roles of deploy/kustomize/base let the controller's account do all
// a look does, and the handlers read what they read.
func TestKeeper_Rights(t *testing.T) {
	w, c := newWorld(t), &clock{Time: time.Now()}
	const user = "system:serviceaccount:pillar-csi-system:pillar-csi-controller"
	w.grant(t, user)
	cfg := rest.CopyConfig(apiservertest.Config(t))
	cfg.Impersonate.UserName = user
	limited, err := client.New(cfg, client.Options{Scheme: w.api.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	k := w.keeper(t, c)
	k.api = limited
	for _, after := range []time.Duration{0, 70 * day} { // creates, then updates
		c.add(after)
		if err := k.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.trusted(t.Context(), k); err != nil {
		t.Error(err)
	}
	look := checks{api: limited, namespace: w.cfg.Namespace}
	for _, ref := range []struct{ kind, version, namespace string }{{"Node", "v1", ""}, {"Secret", "v1", w.cfg.Namespace}} {
		if _, err := look.find(t.Context(), &findings{}, ref.kind, ref.namespace, "none", "", metadata(ref.version, ref.kind)); err != nil {
			t.Error(err)
		}
	}
}

// grant gives a user the controller's roles, under this world's names.
func (w world) grant(t *testing.T, user string) {
	t.Helper()
	data, err := os.ReadFile("../../../deploy/kustomize/base/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("name: pillar-csi\n", "name: "+w.cfg.Name+"\n", "[pillar-csi]", "["+w.cfg.Name+"]",
		"[pillar-csi-webhook-cert]", "["+w.cfg.secret()+"]").Replace(string(data))
	for _, document := range strings.Split(text, "\n---\n") {
		var obj client.Object
		switch {
		case strings.Contains(document, "\nkind: ClusterRole\n"):
			obj = &rbacv1.ClusterRole{}
		case strings.Contains(document, "\nkind: ClusterRoleBinding\n"):
			obj = &rbacv1.ClusterRoleBinding{}
		case strings.Contains(document, "\nkind: Role\n"):
			obj = &rbacv1.Role{}
		case strings.Contains(document, "\nkind: RoleBinding\n"):
			obj = &rbacv1.RoleBinding{}
		default:
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(document), obj); err != nil {
			t.Fatalf("%v in %s", err, document)
		}
		if obj.GetName() != w.cfg.Name {
			continue
		}
		switch obj.(type) {
		case *rbacv1.Role, *rbacv1.RoleBinding:
			obj.SetNamespace(w.cfg.Namespace)
		}
		if err := w.api.Create(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.api.Delete(context.Background(), obj) })
	}
}
