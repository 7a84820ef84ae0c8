package webhook

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/apiservertest"
)

// rule is one thing the schema says: an object, perhaps a change of it, and what the API
// server answers with no webhook at all.
type rule struct {
	spec   string            // YAML
	change string            // YAML merge patch of the spec; empty: the creation is judged
	want   map[string]string // field path -> "Reason: fragment of the message"; nil: accepted
}

// checkRules holds the API server to the rules of one kind.
func checkRules(t *testing.T, kind string, rules map[string]rule) {
	t.Parallel()
	api := newClient(t)
	for name, r := range rules {
		t.Run(name, func(t *testing.T) {
			obj := object(t, kind, r.spec)
			err := api.Create(t.Context(), obj)
			if err == nil {
				t.Cleanup(func() { api.Delete(context.Background(), obj) })
			}
			if r.change != "" {
				if err != nil {
					t.Fatalf("create: %v", err)
				}
				err = api.Patch(t.Context(), obj, mergePatch(t, r.change))
			}
			compareCauses(t, err, r.want)
		})
	}
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	api, err := client.New(apiservertest.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

var objects atomic.Int64

// object makes a named object of a kind from the YAML of its spec.
func object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": decode(t, spec)}}
	obj.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	obj.SetName(fmt.Sprintf("rule-%d", objects.Add(1)))
	return obj
}

func mergePatch(t *testing.T, spec string) client.Patch {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte("spec: " + spec))
	if err != nil {
		t.Fatal(err)
	}
	return client.RawPatch(types.MergePatchType, data)
}

func decode(t *testing.T, text string) (value map[string]any) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return value
}

// compareCauses compares the causes of a refusal, all of them, by field.
func compareCauses(t *testing.T, err error, want map[string]string) {
	t.Helper()
	var refused *apierrors.StatusError
	if err != nil && (!errors.As(err, &refused) || refused.ErrStatus.Details == nil) {
		t.Fatalf("answer = %v, want a Status with causes", err)
	}
	got := map[string]string{}
	if refused != nil {
		for _, c := range refused.ErrStatus.Details.Causes {
			if c.Field == "<nil>" { // "some validation rules were not checked": no violation
				continue
			}
			got[c.Field] += strings.TrimPrefix(string(c.Type), "FieldValue") + ": " + c.Message + "\n"
		}
	}
	for field, text := range want {
		if !matches(got[field], text) {
			t.Errorf("%s: got %q, want %q", field, got[field], text)
		}
	}
	for field, text := range got {
		if _, ok := want[field]; !ok {
			t.Errorf("%s: got %q, want no such cause", field, text)
		}
	}
}

// matches compares "Reason: fragment" with the causes of one field.
func matches(got, want string) bool {
	reason, fragment, _ := strings.Cut(want, ": ")
	return strings.HasPrefix(got, reason+": ") && strings.Contains(got, fragment)
}

// TestSchema_ExportSpecRepair is the operator's patch of block.md B-593: guarded, added once,
// with the three fields the schema demands.
func TestSchema_ExportSpecRepair(t *testing.T) {
	t.Parallel()
	api := newClient(t)
	tests := map[string]struct {
		uid, spec string
		want      map[string]string
		refused   bool
	}{
		"as documented":      {spec: `{"bindAddress":"10.0.0.5","port":0,"aclEnabled":true}`},
		"another lifecycle":  {uid: "another", spec: `{"bindAddress":"10.0.0.5","port":4420,"aclEnabled":true}`, refused: true},
		"port out of range":  {spec: `{"bindAddress":"a","port":65536,"aclEnabled":true}`, want: map[string]string{"status.exportSpec.port": "Invalid: less than or equal to 65535"}},
		"no ACL flag":        {spec: `{"bindAddress":"a","port":0}`, want: map[string]string{"status.exportSpec.aclEnabled": "Required"}},
		"no address":         {spec: `{"port":0,"aclEnabled":true}`, want: map[string]string{"status.exportSpec.bindAddress": "Required"}},
		"empty address":      {spec: `{"bindAddress":"","port":0,"aclEnabled":true}`, want: map[string]string{"status.exportSpec.bindAddress": "Invalid: at least 1"}},
		"small capsules":     {spec: `{"bindAddress":"a","port":0,"aclEnabled":true,"inCapsuleDataSize":512}`, want: map[string]string{"status.exportSpec.inCapsuleDataSize": "Invalid: greater than or equal to 1024"}},
		"odd transfer size":  {spec: `{"bindAddress":"a","port":0,"aclEnabled":true,"maxDataTransferSize":5000}`, want: map[string]string{"status.exportSpec.maxDataTransferSize": "NotSupported: 5000"}},
		"half an NFS export": {spec: `{"bindAddress":"a","port":0,"aclEnabled":true,"nfs":{"version":"4.2"}}`, want: map[string]string{"status.exportSpec.nfs.squash": "Required", "status.exportSpec.nfs.readonly": "Required"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			obj := object(t, "PillarVolumeState", volume(""))
			if err := api.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { api.Delete(context.Background(), obj) })
			if err := api.Status().Patch(t.Context(), obj, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Ready"}}`))); err != nil {
				t.Fatal(err)
			}
			if test.uid == "" {
				test.uid = string(obj.GetUID())
			}
			patch := fmt.Sprintf(`[{"op":"test","path":"/metadata/uid","value":%q},{"op":"test","path":"/metadata/resourceVersion","value":%q},`+
				`{"op":"add","path":"/status/exportSpec","value":%s}]`, test.uid, obj.GetResourceVersion(), test.spec)
			err := api.Status().Patch(t.Context(), obj, client.RawPatch(types.JSONPatchType, []byte(patch)))
			if test.refused {
				if err == nil {
					t.Error("the patch was accepted")
				}
				return
			}
			compareCauses(t, err, test.want)
		})
	}
}

// TestSchema_Served: every kind under its plural and short name, cluster-wide, with a status
// subresource where it has a status, and the columns of api.md 2.
func TestSchema_Served(t *testing.T) {
	t.Parallel()
	api := newClient(t)
	want := map[string]string{
		"pillaragents":             "pa Cluster status: Address Agent Ready Age",
		"pillarstores":             "pst Cluster status: Target Available Ready Age",
		"pillarprotocols":          "pstr Cluster status: Bindings Ready Age",
		"pillarstorageclasses":     "psc Cluster status: Pool Protocol StorageClass Ready Age",
		"pillarvolumestates":       "pvst Cluster status: Phase Target Backend Protocol Source Age",
		"pillarvolumereservations": "pvrs Cluster: Owner BackendVolume Target Age",
	}
	for plural, text := range want {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		if err := api.Get(t.Context(), client.ObjectKey{Name: plural + "." + v1alpha1.GroupVersion.Group}, crd); err != nil {
			t.Errorf("%s: %v", plural, err)
			continue
		}
		if got := describe(crd.Object); got != text {
			t.Errorf("%s: got %q, want %q", plural, got, text)
		}
	}
}

// describe says short name, scope, status subresource and columns of a CRD.
func describe(crd map[string]any) string {
	short, _, _ := unstructured.NestedStringSlice(crd, "spec", "names", "shortNames")
	scope, _, _ := unstructured.NestedString(crd, "spec", "scope")
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	version := versions[0].(map[string]any)
	text := strings.Join(short, ",") + " " + scope
	if _, ok, _ := unstructured.NestedMap(version, "subresources", "status"); ok {
		text += " status"
	}
	text += ":"
	columns, _, _ := unstructured.NestedSlice(version, "additionalPrinterColumns")
	for _, c := range columns {
		text += " " + c.(map[string]any)["name"].(string)
	}
	return text
}

// TestSchema_Defaults: what a minimal object reads as.
func TestSchema_Defaults(t *testing.T) {
	t.Parallel()
	api := newClient(t)
	tests := map[string]struct{ kind, spec, want string }{
		"agent":    {"PillarAgent", `{nodeRef: {name: w1}}`, `{nodeRef: {name: w1, addressType: InternalIP}}`},
		"zfs":      {"PillarStore", `{agentRef: a, backend: {zfs: {pool: p}}}`, `{agentRef: a, backend: {zfs: {pool: p, volumeType: zvol}}}`},
		"lvm":      {"PillarStore", `{agentRef: a, backend: {lvm: {volumeGroup: g}}}`, `{agentRef: a, backend: {lvm: {volumeGroup: g, provisioningMode: linear}}}`},
		"nvme":     {"PillarProtocol", `{protocol: {nvmeofTcp: {}}}`, `{protocol: {nvmeofTcp: {port: 4420, acl: false, hdrDigest: false, dataDigest: false}}}`},
		"iscsi":    {"PillarProtocol", `{protocol: {iscsi: {}}}`, `{protocol: {iscsi: {port: 3260, acl: false}}}`},
		"no auth":  {"PillarProtocol", `{protocol: {iscsi: {auth: {}}}}`, `{protocol: {iscsi: {port: 3260, acl: false, auth: {method: None}}}}`},
		"nfs":      {"PillarProtocol", `{protocol: {nfs: {}}}`, `{protocol: {nfs: {version: "4.2", port: 2049, acl: false, squash: root}}}`},
		"class":    {"PillarStorageClass", `{storeRef: s, protocolRef: p}`, `{storeRef: s, protocolRef: p, csiDriver: pillar-csi.bhyoo.com, localAttach: false, storageClass: {reclaimPolicy: Delete, volumeBindingMode: Immediate}}`},
		"defaults": {"PillarVolumeReservation", `{agentRef: a, backendType: b, agentVolumeID: p/v, ownerVolume: v}`, `{agentRef: a, backendType: b, agentVolumeID: p/v, ownerVolume: v}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			obj := object(t, test.kind, test.spec)
			if err := api.Create(t.Context(), obj, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			compareText(t, obj.Object["spec"], decode(t, test.want))
		})
	}
}

func compareText(t *testing.T, got, want any) {
	t.Helper()
	g, _ := yaml.Marshal(got)
	w, _ := yaml.Marshal(want)
	if string(g) != string(w) {
		t.Errorf("got\n%swant\n%s", g, w)
	}
}
