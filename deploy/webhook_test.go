package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestBase_Webhooks holds the webhooks to what keeps them from blocking anybody: a spec that
// is new or changed, never a status, one Service, a short time.
func TestBase_Webhooks(t *testing.T) {
	objects := render(t, "kustomize/base")
	want := map[string]string{
		"Validating pillaragents":         "Fail /validate/pillaragents",
		"Validating pillarstores":         "Fail /validate/pillarstores",
		"Validating pillarprotocols":      "Ignore /validate/pillarprotocols",
		"Validating pillarstorageclasses": "Fail /validate/pillarstorageclasses",
		"Mutating pillarstorageclasses":   "Fail /default/pillarstorageclasses",
	}
	got := map[string]string{}
	for _, kind := range []string{"Validating", "Mutating"} {
		for _, w := range list(objects[kind+"WebhookConfiguration/pillar-csi"], "webhooks") {
			resource, _, _ := strings.Cut(w["name"].(string), ".")
			service := w["clientConfig"].(object)["service"].(object)
			got[kind+" "+resource] = fmt.Sprint(w["failurePolicy"], " ", service["path"])

			if service["name"] != "pillar-csi-webhook" || service["namespace"] != "pillar-csi-system" {
				t.Errorf("%s %s calls %v", kind, resource, service)
			}
			rules := []object{{"apiGroups": []any{"pillar-csi.bhyoo.com"}, "apiVersions": []any{"v1alpha1"},
				"resources": []any{resource}, "operations": []any{"CREATE", "UPDATE"}}}
			if diff := cmp.Diff(rules, list(w, "rules")); diff != "" {
				t.Errorf("%s %s, rules (-want +got):\n%s", kind, resource, diff)
			}
			condition := list(w, "matchConditions")[0]["expression"]
			if condition != "request.operation == 'CREATE' || object.spec != oldObject.spec" || w["timeoutSeconds"] != 5 {
				t.Errorf("%s %s is called if %v, for up to %v s", kind, resource, condition, w["timeoutSeconds"])
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("webhooks (-want +got):\n%s", diff)
	}
}

// TestBase_WebhookPort follows a call: Service port, target port, container port, flag.
func TestBase_WebhookPort(t *testing.T) {
	objects := render(t, "kustomize/base")
	service := objects["Service/pillar-csi-webhook"]["spec"].(object)
	port := list(service, "ports")[0]
	if port["port"] != 443 || port["targetPort"] != "webhook" {
		t.Errorf("the Service has port %v to %v, want 443 to webhook", port["port"], port["targetPort"])
	}
	pod := podOf(objects["Deployment/pillar-csi-controller"])
	controller := containers(pod)[0]
	at := slices.IndexFunc(list(controller, "ports"), func(p object) bool { return p["name"] == "webhook" })
	if at < 0 {
		t.Fatal("the controller has no port named webhook")
	}
	flag := fmt.Sprintf("--webhook-port=%v", list(controller, "ports")[at]["containerPort"])
	if !slices.Contains(asList(controller["args"]), any(flag)) {
		t.Errorf("the controller's flags %v lack %s", controller["args"], flag)
	}
}

// TestComponent_CertManager: with the component the controller serves what cert-manager
// issues, which injects the CA; all else is as in the base.
func TestComponent_CertManager(t *testing.T) {
	base, got := render(t, "kustomize/base"), render(t, withComponent(t, "cert-manager"))
	const injected = "pillar-csi-system/pillar-csi-webhook"
	for _, kind := range []string{"Validating", "Mutating"} {
		meta := got[kind+"WebhookConfiguration/pillar-csi"]["metadata"].(object)
		if diff := cmp.Diff(any(object{"cert-manager.io/inject-ca-from": injected}), meta["annotations"]); diff != "" {
			t.Errorf("annotations of the %s webhooks (-want +got):\n%s", kind, diff)
		}
		delete(meta, "annotations")
	}
	serving := got["Certificate/pillar-csi-webhook"]["spec"].(object)
	service := base["Service/pillar-csi-webhook"]["metadata"].(object)
	if diff := cmp.Diff([]any{fmt.Sprintf("%v.%v.svc", service["name"], service["namespace"])}, serving["dnsNames"]); diff != "" {
		t.Errorf("names in the certificate (-want +got):\n%s", diff)
	}
	pod := podOf(got["Deployment/pillar-csi-controller"])
	drop(pod, "volumes", object{"name": "webhook-cert", "secret": object{"secretName": serving["secretName"]}})
	controller := containers(pod)[0]
	drop(controller, "volumeMounts", object{"name": "webhook-cert", "mountPath": "/webhook-cert", "readOnly": true})
	controller["args"] = slices.DeleteFunc(asList(controller["args"]), func(a any) bool { return a == "--webhook-cert-dir=/webhook-cert" })
	var added []string
	for key := range got {
		if base[key] == nil {
			added = append(added, key)
			delete(got, key)
		}
	}
	slices.Sort(added)
	want := []string{"Certificate/pillar-csi-webhook", "Certificate/pillar-csi-webhook-ca", "Issuer/pillar-csi-webhook", "Issuer/pillar-csi-webhook-ca"}
	if diff := cmp.Diff(want, added); diff != "" {
		t.Errorf("objects the component adds (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(base, got); diff != "" {
		t.Errorf("what else it changes (-base +component):\n%s", diff)
	}
}

// withComponent answers a kustomization of the base with one component, as a user's overlay.
func withComponent(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	at := func(part string) string {
		here, err := filepath.Abs(filepath.Join("kustomize", part))
		if err != nil {
			t.Fatal(err)
		}
		path, err := filepath.Rel(dir, here)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n", at("base"), at("components/"+name))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
