package agent

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/storagetest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
	"github.com/pillar-csi/pillar/transport/nvmet"
)

// rig is a storage node whose disk and kernel are in memory, and the agent on it.
type rig struct {
	t      *testing.T
	dir    string
	mem    *storagetest.Memory
	kernel *configfstest.Kernel
	held   map[string]bool
	log    *observer.ObservedLogs
	*agentrpc.Client
	stop func() error
}

const (
	nqnA  = "nqn.2026-01.com.bhyoo.pillar-csi:vg0.a"
	host1 = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001"
)

var (
	idA    = storage.VolumeID{Pool: "vg0", Name: "a"}
	portal = transport.Portal{Address: "10.0.0.1", Port: 4420}
)

func newRig(t *testing.T) *rig {
	r := &rig{t: t, dir: t.TempDir(), mem: storagetest.NewMemory("vg0", 64<<20), kernel: configfstest.New(), held: map[string]bool{}}
	if err := os.MkdirAll(filepath.Join(r.dir, "sys/module/nvmet_tcp"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

// start runs an agent on the node; what the node has survives it.
func (r *rig) start() {
	r.t.Helper()
	st, err := openState(filepath.Join(r.dir, "state"))
	if err != nil {
		r.t.Fatal(err)
	}
	marks, err := fencing.Open(st.path("generations"))
	if err != nil {
		r.t.Fatal(err)
	}
	core, logs := observer.New(zapcore.InfoLevel)
	r.log = logs
	vols := &volumes{devices: r, pools: []pool{{
		name: "vg0", backend: storage.LVMLV, mode: "linear", Backend: r.mem, check: lvm.CheckName,
		device: func(volume string) string { return "/dev/vg0/" + volume },
	}}}
	tcp := nvmeTCP{nvmet.New(r.kernel.Dir(), nvmet.Config{IdentityDir: st.path("nvmet-identity"), Root: host.Root(r.dir)})}
	s := newServer(zap.New(core), st, marks, vols, targets{transport.NVMeTCP: tcp}, func() error { return nil })
	r.serve(s)
}

func (r *rig) serve(s *server) {
	listener := bufconn.Listen(1 << 16)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.serve(ctx, listener, 0) }()
	client, err := agentrpc.Dial("passthrough:agent", agentrpc.Config{
		Dialer: func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.Client = client
	r.stop = func() error {
		cancel()
		client.Close()
		err := <-done
		done <- nil // stop twice is stop once
		s.state.close()
		return err
	}
}

// open sends an empty complete request.
func (r *rig) open() {
	r.t.Helper()
	if _, err := r.Reconcile(r.t.Context(), true, nil); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) Ready(path string) error {
	d, err := r.mem.Open(path)
	if err != nil {
		return errNoDevice
	}
	return d.Close()
}

func (r *rig) Numbers(string) (major, minor uint32, err error) { return 0, 0, fs.ErrNotExist }

func (r *rig) Hold(path string, _ storage.DeviceID) (func() error, error) {
	if r.held[path] {
		return nil, storage.ErrBusy
	}
	return func() error { return nil }, nil
}

// ownerA is token's.
const ownerA = storage.Owner("uid-a")

func token(generation int64) fencing.Token {
	return fencing.Token{UID: "uid-a", Generation: generation}
}

func spec(bytes int64) storage.Spec {
	return storage.Spec{ID: idA, Bytes: bytes, Backend: storage.LVMLV, LVM: &storage.LVMParams{VolumeGroup: "vg0", Mode: "linear"}}
}

func export(hosts ...string) transport.Export {
	return transport.Export{Kind: transport.NVMeTCP, Volume: "vg0/a", Portal: portal, ACL: true, Initiators: hosts}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// create makes volume a at the generation.
func (r *rig) create(generation int64) storage.Volume {
	r.t.Helper()
	vol, err := r.CreateVolume(r.t.Context(), token(generation), spec(5<<20))
	r.must(err)
	return vol
}

// links answers which subsystems are reachable.
func (r *rig) links() []string {
	r.t.Helper()
	list, err := nvmet.New(r.kernel.Dir(), nvmet.Config{}).List(r.t.Context())
	r.must(err)
	var ids []string
	for _, x := range list {
		if x.Portal.Port != 0 {
			ids = append(ids, x.ID)
		}
	}
	return ids
}

func TestAgent_LifeOfAVolume(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.open()
	want := storage.Volume{ID: idA, Bytes: 8 << 20, DevicePath: "/dev/vg0/a"}
	for range 2 { // the second is a retry
		if vol := r.create(1); vol != want {
			t.Errorf("CreateVolume = %+v, want %+v", vol, want)
		}
	}
	got, err := r.ExportVolume(ctx, token(2), storage.LVMLV, export())
	wantTarget := transport.Target{ID: nqnA, Ref: nqnA, Portal: portal, Enabled: true, ACL: true}
	if diff := cmp.Diff(wantTarget, got); err != nil || diff != "" {
		t.Errorf("ExportVolume: %v (-want +got):\n%s", err, diff)
	}
	r.must(r.AllowInitiator(ctx, token(3), storage.LVMLV, transport.NVMeTCP, idA, host1, true))
	r.must(r.DenyInitiator(ctx, token(4), storage.LVMLV, transport.NVMeTCP, idA, host1))
	for range 2 {
		r.must(r.UnexportVolume(ctx, token(5), storage.LVMLV, transport.NVMeTCP, idA))
		r.must(r.DeleteVolume(ctx, token(5), storage.LVMLV, idA))
	}
	if list, err := r.mem.List(ctx); len(list) > 0 || err != nil {
		t.Errorf("left: %v, %v, want no volume", list, err)
	}
	if ids := r.links(); len(ids) > 0 {
		t.Errorf("left: %v, want no export", ids)
	}
	wantLog(t, r.log, "CreateVolume admit_new_lifecycle", "ExportVolume admit_advance", "AllowInitiator admit_advance",
		"DenyInitiator admit_advance", "UnexportVolume admit_advance", "DeleteVolume admit_same_generation")
}

// wantLog wants one line per operation that changed something, after the gate's.
func wantLog(t *testing.T, logs *observer.ObservedLogs, want ...string) {
	t.Helper()
	var got []string
	for _, e := range logs.FilterMessage("rpc done").All() {
		m := e.ContextMap()
		method, _ := m["grpc.method"].(string)
		if d, ok := m["pillar_csi.fence.decision"].(string); ok {
			got = append(got, method[strings.LastIndex(method, "/")+1:]+" "+d)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("log lines (-want +got):\n%s", diff)
	}
}

func TestAgent_FailureIsOneLine(t *testing.T) {
	r := newRig(t)
	err := r.DeleteVolume(t.Context(), fencing.Token{}, storage.LVMLV, idA)
	var rejection *fencing.Rejection
	if !errors.Is(err, fencing.ErrStale) || !errors.As(err, &rejection) || rejection.Decision != fencing.RejectMissingToken {
		t.Errorf("DeleteVolume without a token = %v, want reject_missing_token", err)
	}
	lines := r.log.FilterMessage("rpc failed").All()
	if len(lines) != 1 || lines[0].Level != zapcore.WarnLevel {
		t.Fatalf("log = %v, want one WARN line", lines)
	}
	m := lines[0].ContextMap()
	delete(m, "duration_seconds")
	want := map[string]any{
		"grpc.method": "/pillar_csi.agent.v1.AgentService/DeleteVolume", "grpc.code": "FailedPrecondition",
		"pillar_csi.pv.name": "a", "pillar_csi.fence.decision": "reject_missing_token", "error": err.Error(),
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
}

func TestAgent_RefusesBeforeAnyEffect(t *testing.T) {
	r := newRig(t)
	ctx, tok := t.Context(), token(1)
	other := storage.VolumeID{Pool: "vg9", Name: "a"}
	elsewhere := spec(1)
	elsewhere.ID.Pool, elsewhere.LVM = "vg9", &storage.LVMParams{VolumeGroup: "vg9"}
	thin := spec(1)
	thin.LVM = &storage.LVMParams{VolumeGroup: "vg0", Mode: "thin", ThinPool: "tp"}
	dataset := storage.Spec{ID: idA, Bytes: 1, Backend: storage.ZFSDataset, ZFS: &storage.ZFSParams{Pool: "vg0"}}
	create := func(s storage.Spec) error { _, err := r.CreateVolume(ctx, tok, s); return err }
	_, capacity := r.Capacity(ctx, storage.LVMLV, "vg9")
	tests := map[string]struct{ err, want error }{
		"create in another pool":      {create(elsewhere), storage.ErrNotFound},
		"create of another layout":    {create(thin), storage.ErrPrecondition},
		"create of another backend":   {create(dataset), storage.ErrUnsupported},
		"create of no size":           {create(spec(0)), storage.ErrInvalid},
		"delete in another pool":      {r.DeleteVolume(ctx, tok, storage.LVMLV, other), storage.ErrPrecondition},
		"unexport in another pool":    {r.UnexportVolume(ctx, tok, storage.LVMLV, transport.NVMeTCP, other), storage.ErrPrecondition},
		"deny in another pool":        {r.DenyInitiator(ctx, tok, storage.LVMLV, transport.NVMeTCP, other, host1), storage.ErrPrecondition},
		"deny of no initiator":        {r.DenyInitiator(ctx, tok, storage.LVMLV, transport.NVMeTCP, idA, "../x"), transport.ErrInvalid},
		"unexport of no protocol":     {r.UnexportVolume(ctx, tok, storage.LVMLV, "", idA), transport.ErrInvalid},
		"unexport of another":         {r.UnexportVolume(ctx, tok, storage.LVMLV, transport.ISCSI, idA), transport.ErrUnsupported},
		"delete without a backend":    {r.DeleteVolume(ctx, tok, "", idA), storage.ErrInvalid},
		"delete of an illegal name":   {r.DeleteVolume(ctx, tok, storage.LVMLV, storage.VolumeID{Pool: "vg0", Name: ".."}), storage.ErrInvalid},
		"delete without a volume ID":  {r.DeleteVolume(ctx, tok, storage.LVMLV, storage.VolumeID{Pool: "vg0"}), storage.ErrInvalid},
		"expand in another pool":      {r.expand(1, other, 1), storage.ErrNotFound},
		"expand to no size":           {r.expand(1, idA, 0), storage.ErrInvalid},
		"expand of an illegal name":   {r.expand(1, storage.VolumeID{Pool: "vg0", Name: ".."}, 1), storage.ErrInvalid},
		"capacity of another pool":    {capacity, storage.ErrNotFound},
		"an export while gated":       {second(r.ExportVolume(ctx, tok, storage.LVMLV, export())), agentrpc.ErrUnavailable},
		"a grant while gated":         {r.AllowInitiator(ctx, tok, storage.LVMLV, transport.NVMeTCP, idA, host1, true), agentrpc.ErrUnavailable},
		"a resync while gated":        {second(r.Reconcile(ctx, false, nil)), agentrpc.ErrUnavailable},
		"a create at no space at all": {create(spec(1 << 40)), storage.ErrNoSpace}, // writes its mark, nothing else
	}
	for name, tt := range tests {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v, want %v", name, tt.err, tt.want)
		}
	}
	if trace := r.kernel.Trace(); len(trace) > 0 {
		t.Errorf("kernel saw %v, want nothing", trace)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAgent_Foreign(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.mem.Stranger("a", 8<<20)
	if _, err := r.CreateVolume(ctx, token(1), spec(5<<20)); !errors.Is(err, fencing.ErrForeign) {
		t.Errorf("CreateVolume over a stranger = %v, want ErrForeign", err)
	}
	r.must(r.DeleteVolume(ctx, token(2), storage.LVMLV, idA))
	if _, err := r.mem.Inspect(ctx, "a"); err != nil {
		t.Errorf("the stranger: %v, want it untouched", err)
	}
}

func TestAgent_UnknownIsNotAbsent(t *testing.T) {
	r := newRig(t)
	r.create(1)
	r.mem.Fail(errors.New("vgs: I/O error"))
	if err := r.DeleteVolume(t.Context(), token(2), storage.LVMLV, idA); agentrpc.CodeOf(err).String() != "Internal" {
		t.Errorf("DeleteVolume while the tool fails = %v, want Internal", err)
	}
	h, err := r.Health(t.Context())
	if err != nil || !h.Serving || healthy(h, "pool") || !healthy(h, "nvmet_configfs") {
		t.Errorf("Health = %+v, %v, want serving with an unhealthy pool", h, err)
	}
	caps, err := r.Capabilities(t.Context())
	if err != nil || len(caps.Pools) > 0 || !slices.Equal(caps.Protocols, []transport.Kind{transport.NVMeTCP}) {
		t.Errorf("Capabilities = %+v, %v, want NVMe/TCP and no pool", caps, err)
	}
}

func healthy(h agentrpc.Health, name string) bool {
	return slices.ContainsFunc(h.Subsystems, func(s agentrpc.Subsystem) bool { return s.Name == name && s.Healthy })
}

func TestAgent_RestartRestores(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	r.open()
	r.create(1)
	_, err := r.ExportVolume(ctx, token(2), storage.LVMLV, export(host1))
	r.must(err)
	item := agentrpc.Item{Token: token(2), Backend: storage.LVMLV, Export: export(host1), Ready: true}

	r.must(r.stop())
	r.start()
	r.kernel.Trace()
	wantGated(t, r, true)
	results, err := r.Reconcile(ctx, true, []agentrpc.Item{item})
	if err != nil || len(results) != 1 || results[0].Err != nil {
		t.Fatalf("Reconcile = %v, %v", results, err)
	}
	if trace := r.kernel.Trace(); len(trace) > 0 {
		t.Errorf("an intact kernel saw %v, want nothing", trace)
	}
	wantGated(t, r, false)

	r.must(r.stop()) // and now the node reboots
	r.mem.Reboot()
	r.kernel = configfstest.New()
	r.start()
	if results, err = r.Reconcile(ctx, true, []agentrpc.Item{item}); err != nil || results[0].Err != nil {
		t.Fatalf("Reconcile after a reboot = %v, %v", results, err)
	}
	if ids := r.links(); !slices.Equal(ids, []string{nqnA}) {
		t.Errorf("exports = %v, want %s", ids, nqnA)
	}
}

func wantGated(t *testing.T, r *rig, want bool) {
	t.Helper()
	h, err := r.Health(t.Context())
	if err != nil || h.Gated != want {
		t.Errorf("Health = %+v, %v, want gated %v", h, err, want)
	}
}

func TestAgent_HeldDeviceIsNotExported(t *testing.T) {
	r := newRig(t)
	r.open()
	r.create(1)
	r.held["/dev/vg0/a"] = true
	if _, err := r.ExportVolume(t.Context(), token(2), storage.LVMLV, export(host1)); !errors.Is(err, storage.ErrBusy) {
		t.Errorf("ExportVolume = %v, want ErrBusy", err)
	}
	if ids := r.links(); len(ids) > 0 {
		t.Errorf("exports = %v, want none", ids)
	}
}

func TestAgent_StopDrains(t *testing.T) {
	r := newRig(t)
	r.must(r.stop())
	if _, err := os.Stat(filepath.Join(r.dir, "state/flushed")); err != nil {
		t.Errorf("marker after a stop: %v, want it there", err)
	}
}
