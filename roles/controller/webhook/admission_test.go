package webhook

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/apiservertest"
)

// warnings collects what the API server warns a client of.
type warnings struct {
	sync.Mutex
	all []string
}

// HandleWarningHeaderWithContext keeps a warning.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() []string {
	w.Lock()
	defer w.Unlock()
	all := w.all
	w.all = nil
	return all
}

// serving is a world whose webhooks answer, and a client that hears their warnings.
func serving(t *testing.T) (world, *warnings) {
	t.Helper()
	w := newWorld(t)
	return w, w.serve(t)
}

// serve has the world's webhooks answer until the test ends; its client is one whose warnings
// the answer hears.
func (w *world) serve(t *testing.T) *warnings {
	t.Helper()
	log.SetLogger(logr.Discard())
	mgr, err := ctrl.NewManager(apiservertest.Config(t), ctrl.Options{
		Scheme: w.api.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Logger: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Setup(mgr, w.api, w.cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() { cancel(); <-done })

	heard := &warnings{}
	cfg := rest.CopyConfig(apiservertest.Config(t))
	cfg.WarningHandlerWithContext = heard
	if w.api, err = client.New(cfg, client.Options{Scheme: w.api.Scheme()}); err != nil {
		t.Fatal(err)
	}
	w.callable(t)
	heard.take()
	return heard
}

// callable returns once the API server reaches the webhooks.
func (w world) callable(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		err := w.api.Create(ctx, w.object(t, "PillarStorageClass", `{storeRef: none, protocolRef: none}`), client.DryRunAll)
		if err == nil {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// stock makes the objects that the rows name.
func (w world) stock(t *testing.T) {
	t.Helper()
	for name, spec := range map[string]string{
		"zvols": zvols, "lvs": lvs, "dirs": directories, "datasets": `{agentRef: a, backend: {zfs: {pool: p, volumeType: dataset}}}`,
	} {
		w.named(t, "PillarStore", name, spec)
	}
	for name, spec := range map[string]string{"nvme": nvme, "iscsi": `{protocol: {iscsi: {}}}`, "nfs": `{protocol: {nfs: {}}}`} {
		w.named(t, "PillarProtocol", name, spec)
	}
	w.named(t, "PillarAgent", "there", outside)
	w.create(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}})
	w.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "chap"}})
}

func (w world) named(t *testing.T, kind, name, spec string) {
	t.Helper()
	obj := object(t, kind, spec)
	obj.SetName(name)
	w.create(t, obj)
}

// TestAdmission: what the webhooks refuse, all of it in one answer, and what they warn of.
func TestAdmission(t *testing.T) {
	w, heard := serving(t)
	w.stock(t)
	tests := map[string]struct {
		kind string
		rule
		warnings []string
	}{
		"agent on a node": {kind: "PillarAgent", rule: rule{spec: onNode}},
		"node to come": {kind: "PillarAgent", rule: rule{spec: `{nodeRef: {name: later}}`},
			warnings: []string{`Node "later" does not exist (yet); the agent is not Ready until it joins the cluster`}},
		"selector": {kind: "PillarAgent", rule: rule{spec: `{nodeRef: {name: w1, addressSelector: 10.0.0.300/24}}`,
			want: map[string]string{"spec.nodeRef.addressSelector": `Invalid: "10.0.0.300/24": is not a CIDR; write it like 10.0.0.0/24`}}},
		"selectors of both families": {kind: "PillarAgent", rule: rule{spec: `{nodeRef: {name: w1, addressSelector: "fd00::/64"}}`, change: `{nodeRef: {addressSelector: 10.0.0.0/8}}`}},
		"another port": {kind: "PillarAgent", rule: rule{spec: outside, change: `{external: {port: 9501}}`,
			want: map[string]string{"spec.external.port": "Forbidden: external.port is immutable: was 9500, asked for 9501"}}},
		"node that is a path": {kind: "PillarAgent", rule: rule{spec: `{nodeRef: {name: ..}}`, want: map[string]string{"spec.nodeRef.name": "Invalid: should match"}}},
		"address nobody has": {kind: "PillarAgent", rule: rule{spec: `{external: {address: 10.0.0.300, port: 1}}`,
			want: map[string]string{"spec.external.address": "Invalid: is neither an IP address nor a host name; write it without brackets and port"}}},
		"dataset with dots": {kind: "PillarStore", rule: rule{spec: `{agentRef: there, backend: {zfs: {pool: p, parentDataset: a/../b}}}`,
			want: map[string]string{"spec.backend.zfs.parentDataset": "Invalid: want A-Z a-z 0-9 - _ . : and no - first; name it as it is on the storage node"}}},
		"Secret that is a path": {kind: "PillarProtocol", rule: rule{spec: `{protocol: {iscsi: {acl: true, auth: {method: CHAP, secretRef: {name: ../kube-system/x}}}}}`,
			want: map[string]string{"spec.protocol.iscsi.auth.secretRef.name": "Invalid: should match"}}},
		"store": {kind: "PillarStore", rule: rule{spec: `{agentRef: there, backend: {lvm: {volumeGroup: g}}}`}},
		"agent to come, thin": {kind: "PillarStore", rule: rule{spec: `{agentRef: later, backend: {lvm: {volumeGroup: g, provisioningMode: thin}}}`},
			warnings: []string{"spec.backend.lvm.provisioningMode is thin without a thinPool; every claim will be refused until lvm.thinPool is set",
				`PillarAgent "later" does not exist (yet); the store is not Ready until it is created`}},
		"properties of the agent": {kind: "PillarStore", rule: rule{spec: `{agentRef: there, backend: {zfs: {pool: p, volumeType: dataset, properties: {quota: "1", mountpoint: /x, compression: lz4}}}}`,
			want: map[string]string{"spec.backend.zfs.properties.quota": `Invalid: "1": is set by pillar; remove it`, "spec.backend.zfs.properties.mountpoint": "Invalid: is set by pillar"}}},
		"CHAP": {kind: "PillarProtocol", rule: rule{spec: `{protocol: {iscsi: {acl: true, auth: {method: CHAP, secretRef: {name: chap}}}}}`},
			warnings: []string{"protocol iscsi is not supported yet; use a PillarProtocol with nvmeofTcp: until then no volume can be made"}},
		"Secret to come": {kind: "PillarProtocol", rule: rule{spec: `{protocol: {iscsi: {acl: true, auth: {method: CHAP, secretRef: {name: later}}}}}`},
			warnings: []string{"protocol iscsi is not supported yet; use a PillarProtocol with nvmeofTcp: until then no volume can be made",
				`Secret "later" does not exist (yet); the protocol is not Ready until it is created in namespace default`}},
		"delay of nothing": {kind: "PillarProtocol", rule: rule{spec: `{protocol: {nvmeofTcp: {reconnectDelay: 0}}}`},
			warnings: []string{"spec.protocol.nvmeofTcp.reconnectDelay is 0, which the kernel refuses: pods with new volumes will not start; use at least 1"}},
		"class": {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: lvs, protocolRef: nvme}`}},
		"class of a later version": {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: lvs, protocolRef: nvme, localAttach: true}`},
			warnings: []string{"localAttach: true is not supported yet; set it to false: until then no volume can be made"}},
		"both to come": {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: later, protocolRef: later}`},
			warnings: []string{`PillarStore "later" does not exist (yet); the class is not Ready until it is created`,
				`PillarProtocol "later" does not exist (yet); the class is not Ready until it is created`}},
		"incompatible":       {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: lvs, protocolRef: nfs}`, want: map[string]string{"spec.protocolRef": "Invalid: incompatible"}}},
		"directory, default": {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: dirs, protocolRef: nfs}`, want: map[string]string{"spec.protocolRef": "Invalid: incompatible"}}},
		"file driver, block": {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: lvs, protocolRef: nvme, csiDriver: files.pillar-csi.bhyoo.com}`, want: map[string]string{"spec.protocolRef": "Invalid: incompatible"}}},
		"override members": {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: lvs, protocolRef: nvme, overrides: {backend: {zfs: {}}, protocol: {iscsi: {}}}}`, want: map[string]string{
			"spec.overrides.backend.zfs": "Forbidden: do not apply to a lvm-lv backend; remove zfs", "spec.overrides.protocol.iscsi": "Forbidden: do not apply to a nvmeof-tcp protocol; remove iscsi"}}},
		"what NFS does not carry": {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: datasets, protocolRef: nfs, localAttach: true, filesystem: {fsType: xfs, mkfsOptions: [-K], periodicTrim: true}}`, want: map[string]string{
			"spec.localAttach": "Invalid: does not apply to nfs", "spec.filesystem.fsType": "Invalid: is not supported over nfs; use nfs", "spec.filesystem.mkfsOptions": "Invalid: does not apply to nfs", "spec.filesystem.periodicTrim": "Invalid: does not apply to nfs"}}},
		"a wrong type beside all else": {kind: "PillarStorageClass", rule: rule{
			spec: `{storeRef: a/b, protocolRef: x%y, csiDriver: foo, localAttach: maybe, storageClass: {name: "", reclaimPolicy: Recycle, volumeBindingMode: x}}`,
			want: map[string]string{
				"spec.localAttach": "TypeInvalid: boolean", "spec.csiDriver": "NotSupported", "spec.storeRef": "Invalid: should match", "spec.protocolRef": "Invalid: should match",
				"spec.storageClass.name": "Invalid: at least 1", "spec.storageClass.reclaimPolicy": "NotSupported", "spec.storageClass.volumeBindingMode": "NotSupported"}}},
		"changed into a wrong one": {kind: "PillarStorageClass", rule: rule{spec: `{storeRef: lvs, protocolRef: nvme}`, change: `{overrides: {backend: {zfs: {}}}}`,
			want: map[string]string{"spec.overrides.backend.zfs": "Forbidden: do not apply to a lvm-lv backend"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			obj := w.object(t, test.kind, test.spec)
			err := w.api.Create(t.Context(), obj)
			t.Cleanup(func() { w.api.Delete(context.Background(), obj) })
			if test.change != "" {
				if err != nil {
					t.Fatal(err)
				}
				err = w.api.Patch(t.Context(), obj, mergePatch(t, test.change))
			}
			compareCauses(t, err, test.want)
			if diff := cmp.Diff(test.warnings, heard.take()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}

// TestDefault: allowVolumeExpansion, and nothing else, is filled in.
func TestDefault(t *testing.T) {
	w, _ := serving(t)
	w.stock(t)
	rest := `csiDriver: pillar-csi.bhyoo.com, localAttach: false, storageClass: {reclaimPolicy: Delete, volumeBindingMode: Immediate`
	tests := map[string]struct{ spec, want string }{
		"zvol":      {`{storeRef: zvols, protocolRef: nvme}`, `{storeRef: zvols, protocolRef: nvme, ` + rest + `, allowVolumeExpansion: true}}`},
		"LV":        {`{storeRef: lvs, protocolRef: nvme}`, `{storeRef: lvs, protocolRef: nvme, ` + rest + `, allowVolumeExpansion: true}}`},
		"dataset":   {`{storeRef: datasets, protocolRef: nfs}`, `{storeRef: datasets, protocolRef: nfs, ` + rest + `, allowVolumeExpansion: true}}`},
		"no store":  {`{storeRef: later, protocolRef: nfs}`, `{storeRef: later, protocolRef: nfs, ` + rest + `}}`},
		"explicit":  {`{storeRef: lvs, protocolRef: nvme, storageClass: {allowVolumeExpansion: false}}`, `{storeRef: lvs, protocolRef: nvme, ` + rest + `, allowVolumeExpansion: false}}`},
		"files":     {`{storeRef: dirs, protocolRef: nfs, csiDriver: files.pillar-csi.bhyoo.com}`, `{storeRef: dirs, protocolRef: nfs, csiDriver: files.pillar-csi.bhyoo.com, localAttach: false, storageClass: {reclaimPolicy: Delete, volumeBindingMode: Immediate, allowVolumeExpansion: false}}`},
		"its lists": {`{storeRef: lvs, protocolRef: nvme, filesystem: {mkfsOptions: [], mountOptions: [noatime]}}`, `{storeRef: lvs, protocolRef: nvme, filesystem: {mkfsOptions: [], mountOptions: [noatime]}, ` + rest + `, allowVolumeExpansion: true}}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			obj := object(t, "PillarStorageClass", test.spec)
			obj.SetLabels(map[string]string{mine: w.cfg.Name})
			if err := w.api.Create(t.Context(), obj, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			compareText(t, obj.Object["spec"], decode(t, test.want))
		})
	}
}

// TestAdmission_Down: with no webhook answering, a spec is refused, with words that say what
// to wait for; status, finalizers, annotations and the schema's answer go on.
func TestAdmission_Down(t *testing.T) {
	w := newWorld(t)
	obj := object(t, "PillarStorageClass", class)
	w.create(t, obj)
	obj.SetLabels(map[string]string{mine: w.cfg.Name})
	obj.SetFinalizers([]string{v1alpha1.ClassFinalizer})
	obj.SetAnnotations(map[string]string{v1alpha1.CarryOverAnnotation: "{}"})
	if err := w.api.Update(t.Context(), obj); err != nil {
		t.Errorf("label, finalizer and annotation: %v", err)
	}
	status := client.RawPatch("application/merge-patch+json", []byte(`{"status":{"storageClassName":"x"}}`))
	if err := w.api.Status().Patch(t.Context(), obj, status); err != nil {
		t.Errorf("status: %v", err)
	}
	obj.SetFinalizers(nil)
	if err := w.api.Update(t.Context(), obj); err != nil {
		t.Errorf("finalizer removed: %v", err)
	}
	err := w.api.Patch(t.Context(), obj, mergePatch(t, `{localAttach: true}`))
	if err == nil || !matches("x: "+err.Error(), "x: failed calling webhook") {
		t.Errorf("spec: %v, want a failed call", err)
	}
	protocol := w.object(t, "PillarProtocol", nvme)
	if err := w.api.Create(t.Context(), protocol, client.DryRunAll); err != nil {
		t.Errorf("a protocol, about which webhooks only warn: %v", err)
	}
}

// TestHandlers: the configurations call what is served, and the other way round.
func TestHandlers(t *testing.T) {
	w := world{cfg: Config{Host: "h", Name: "n"}}
	called := map[string]bool{}
	for _, configuration := range w.configurations(t) {
		for _, c := range clients(configuration) {
			called[(*c.URL)[len("https://h:0"):]] = true
		}
	}
	api := newWorld(t).api
	served := map[string]bool{}
	for path := range handlers(api, "ns") {
		served[path] = true
	}
	if diff := cmp.Diff(served, called); diff != "" {
		t.Errorf("paths (-served +called):\n%s", diff)
	}
}
