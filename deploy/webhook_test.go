package deploy

import (
	"fmt"
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
