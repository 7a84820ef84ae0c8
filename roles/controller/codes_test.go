package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// refusal is one row of a code table: what was asked, and how it was answered.
type refusal struct {
	ask      func(b *bench) error
	code     csiserve.Code
	fragment string
}

// run asks the rows one after the other, each about a volume of its own. A row that
// spoiled what the others need is the last one of its bench.
func run(t *testing.T, call string, rows map[string]refusal) {
	t.Helper()
	t.Parallel()
	var b *bench
	asked := 0
	for name, row := range rows {
		if b == nil || b.spoiled {
			b = newBench(t)
		}
		t.Run(name, func(t *testing.T) {
			asked++
			b.t, b.volume = t, fmt.Sprintf("v%d", asked)
			b.agent.set(func(a *fakeAgent) { a.fail, a.see = map[string]error{}, nil })
			wantCode(t, call, row.ask(b), row.code, row.fragment)
		})
	}
}

// asked sends a CreateVolume that differs from a good one by change.
func asked(change func(b *bench, r *csi.CreateVolumeRequest)) func(b *bench) error {
	return func(b *bench) error {
		req := b.createRequest(b.volume)
		change(b, req)
		_, err := b.CreateVolume(b.t.Context(), req)
		return err
	}
}

// failing is a CreateVolume while the agent answers rpc with err.
func failing(rpc string, err error) func(b *bench) error {
	return asked(func(b *bench, _ *csi.CreateVolumeRequest) { b.failing(rpc, err) })
}

func (b *bench) failing(rpc string, err error) {
	b.agent.set(func(a *fakeAgent) { a.fail[rpc] = err })
}

// drop deletes an object of the bench.
func (b *bench) drop(obj client.Object) {
	b.t.Helper()
	b.spoiled = true
	if err := b.api.Delete(b.t.Context(), obj); err != nil {
		b.t.Fatalf("delete %T: %v", obj, err)
	}
}

// leave begins the deletion of a row's object, which its finalizer holds back.
func (b *bench) leave(obj client.Object) {
	b.t.Helper()
	hold := func(finalizers string) error {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))
		return b.api.Patch(context.Background(), obj, patch)
	}
	if err := hold(`["` + v1alpha1.StoreFinalizer + `"]`); err != nil {
		b.t.Fatalf("hold %T: %v", obj, err)
	}
	b.t.Cleanup(func() { _ = hold("null") })
	b.drop(obj)
}

func (b *bench) named() metav1.ObjectMeta { return metav1.ObjectMeta{Name: b.name} }

func (b *bench) withoutAgent() { b.drop(&v1alpha1.PillarAgent{ObjectMeta: b.named()}) }

// edit changes the status of the row's record behind the server's back.
func (b *bench) edit(change func(s *v1alpha1.PillarVolumeStateStatus)) {
	b.t.Helper()
	v := b.state(b.name + b.volume)
	change(&v.Status)
	if err := b.api.Status().Update(b.t.Context(), v); err != nil {
		b.t.Fatal(err)
	}
}

// TestCodes_CreateVolume_request are the CreateVolume rows of api.md 9.4 and block.md
// appendix C that a request alone decides; documents, parameters and annotations have
// theirs in package settings.
func TestCodes_CreateVolume_request(t *testing.T) {
	rwx := csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	change := func(change func(r *csi.CreateVolumeRequest)) func(b *bench) error {
		return asked(func(_ *bench, r *csi.CreateVolumeRequest) { change(r) })
	}
	caps := func(all ...*csi.VolumeCapability) func(b *bench) error {
		return change(func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities = all })
	}
	size := func(required, limit int64) func(b *bench) error {
		return change(func(r *csi.CreateVolumeRequest) {
			r.CapacityRange = &csi.CapacityRange{RequiredBytes: required, LimitBytes: limit}
		})
	}
	run(t, "CreateVolume", map[string]refusal{
		"B-14 empty name":              {change(func(r *csi.CreateVolumeRequest) { r.Name = "" }), csiserve.InvalidArgument, "name"},
		"B-14 slash":                   {change(func(r *csi.CreateVolumeRequest) { r.Name = "a/b" }), csiserve.InvalidArgument, "slash"},
		"B-226 name LVM reserves":      {change(func(r *csi.CreateVolumeRequest) { r.Name = "x_tdata" }), csiserve.InvalidArgument, "name"},
		"B-66 no capabilities":         {caps(), csiserve.InvalidArgument, "volume_capabilities"},
		"B-63 no access type":          {caps(&csi.VolumeCapability{AccessMode: mount(writer).AccessMode}), csiserve.InvalidArgument, "access type"},
		"B-63 no access mode":          {caps(&csi.VolumeCapability{AccessType: mount(writer).AccessType}), csiserve.InvalidArgument, "access mode UNKNOWN"},
		"B-63 RWX of a block volume":   {caps(mount(rwx)), csiserve.InvalidArgument, "MULTI_NODE_MULTI_WRITER"},
		"B-63 one of two unsupported":  {caps(mount(writer), mount(rwx)), csiserve.InvalidArgument, "MULTI_NODE_MULTI_WRITER"},
		"B-67 negative size":           {size(-1, 0), csiserve.InvalidArgument, "required_bytes"},
		"B-67 negative limit":          {size(0, -1), csiserve.InvalidArgument, "limit_bytes"},
		"B-67 limit below request":     {size(2, 1), csiserve.InvalidArgument, "limit_bytes"},
		"B-82 rounded above the limit": {size(1<<30-1, 1<<30-1), csiserve.OutOfRange, "limit is"},
		"B-83 pool full":               {size(100<<30, 0), csiserve.ResourceExhausted, "create volume"},
		"B-83 all there could be":      {size(math.MaxInt64, 0), csiserve.ResourceExhausted, "create volume"},
		"B-68 content source": {
			change(func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = &csi.VolumeContentSource{} }),
			csiserve.InvalidArgument, "volume_content_source is not supported",
		},
		"a VolumeAttributesClass": {
			change(func(r *csi.CreateVolumeRequest) { r.MutableParameters = map[string]string{"a": "b"} }),
			csiserve.InvalidArgument, "mutable_parameters",
		},
		"api 5 unknown parameter": {
			change(func(r *csi.CreateVolumeRequest) { r.Parameters[v1alpha1.KeyPrefix+"acl-enabled"] = "x" }),
			csiserve.InvalidArgument, `unsupported StorageClass parameter "pillar-csi.bhyoo.com/acl-enabled"`,
		},
	})
}

// TestCodes_CreateVolume_agent are the rows an agent's answer decides; it is passed on.
func TestCodes_CreateVolume_agent(t *testing.T) {
	conflict := fmt.Errorf("%w: param_inline_data_size is 8192, asked for 4096", transport.ErrPrecondition)
	pending := fmt.Errorf("export restore pending: %w", agentrpc.ErrUnavailable)
	run(t, "CreateVolume", map[string]refusal{
		"B-74 nobody listens":           {asked(func(b *bench, _ *csi.CreateVolumeRequest) { b.spoiled = true; b.agent.stop() }), csiserve.Unavailable, "check health"},
		"B-74 draining":                 {failing("HealthCheck", agentrpc.ErrUnavailable), csiserve.Unavailable, "check health"},
		"B-83 deadline":                 {failing("CreateVolume", context.DeadlineExceeded), csiserve.CodeOf(context.DeadlineExceeded), "create volume"},
		"B-162 mark unreadable":         {failing("CreateVolume", fencing.ErrMark), csiserve.Internal, "create volume"},
		"B-178 stale fence":             {failing("CreateVolume", fencing.ErrStale), csiserve.FailedPrecondition, "create volume"},
		"B-202 layout mismatch":         {failing("CreateVolume", storage.ErrPrecondition), csiserve.FailedPrecondition, "create volume"},
		"B-203 pool unknown":            {failing("CreateVolume", storage.ErrNotFound), csiserve.NotFound, "create volume"},
		"B-203 backend not offered":     {failing("CreateVolume", storage.ErrUnsupported), csiserve.Unimplemented, "create volume"},
		"B-217 somebody else's backend": {failing("CreateVolume", fencing.ErrForeign), csiserve.AlreadyExists, "create volume"},
		"B-252 port parameter conflict": {failing("ExportVolume", conflict), csiserve.FailedPrecondition, "param_inline_data_size"},
		"B-271 gated":                   {failing("ExportVolume", pending), csiserve.Unavailable, "export restore pending"},
		"B-242 an export of nothing":    {unreachable, csiserve.Internal, `answered target "" at "" port 0, which no host could reach`},
		"fewer bytes than asked for":    {shrunk, csiserve.Internal, "answered 4096 bytes, asked for 1073741824"},
		"a tool's odd words":            {failing("CreateVolume", errors.New("lvcreate: odd")), csiserve.Internal, "lvcreate: odd"},
	})
}

// TestCodes_CreateVolume_objects are the rows that the objects of the cluster decide.
func TestCodes_CreateVolume_objects(t *testing.T) {
	without := func(obj func(b *bench) client.Object) func(b *bench) error {
		return asked(func(b *bench, _ *csi.CreateVolumeRequest) { b.drop(obj(b)) })
	}
	found := func(edit func(s *v1alpha1.PillarVolumeStateStatus)) func(b *bench) error {
		return asked(func(b *bench, _ *csi.CreateVolumeRequest) { b.made(b.volume); b.edit(edit) })
	}
	rwx := csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	run(t, "CreateVolume", map[string]refusal{
		"B-71 class missing": {
			without(func(b *bench) client.Object { return &v1alpha1.PillarStorageClass{ObjectMeta: b.named()} }),
			csiserve.FailedPrecondition, "(named via pillar-csi.bhyoo.com/storage-class) not found",
		},
		"B-71 store missing": {
			without(func(b *bench) client.Object { return &v1alpha1.PillarStore{ObjectMeta: b.named()} }),
			csiserve.FailedPrecondition, "spec.storeRef) not found",
		},
		"B-71 protocol missing": {
			without(func(b *bench) client.Object { return &v1alpha1.PillarProtocol{ObjectMeta: b.named()} }),
			csiserve.FailedPrecondition, "spec.protocolRef) not found",
		},
		"2.1 store on its way out": {
			asked(func(b *bench, _ *csi.CreateVolumeRequest) { b.leave(&v1alpha1.PillarStore{ObjectMeta: b.named()}) }),
			csiserve.FailedPrecondition, "spec.storeRef) is being deleted",
		},
		"B-71 claim missing": {
			asked(func(_ *bench, r *csi.CreateVolumeRequest) { forClaim(r, "nobody") }),
			csiserve.FailedPrecondition, "(named via csi.storage.k8s.io/pvc/name) not found",
		},
		"B-85 a claim made anew": {
			asked(func(b *bench, r *csi.CreateVolumeRequest) {
				r.Name = "pvc-" + uuid.NewString()
				forClaim(r, b.claim("anew-"+b.name, nil).Name)
			}),
			csiserve.FailedPrecondition, "which is gone; the one of that name now has UID",
		},
		"B-73 agent missing": {
			without(func(b *bench) client.Object { return &v1alpha1.PillarAgent{ObjectMeta: b.named()} }),
			csiserve.FailedPrecondition, "PillarAgent",
		},
		"B-72 incompatible pair":        {incompatible, csiserve.FailedPrecondition, "incompatible"},
		"B-74 no address":               {asked(func(b *bench, _ *csi.CreateVolumeRequest) { b.address("") }), csiserve.Unavailable, "no resolved address"},
		"B-75 Secret missing":           {withSecret(nil), csiserve.FailedPrecondition, `Secret "default/`},
		"B-75 Secret without password":  {withSecret(map[string]string{"username": "u"}), csiserve.FailedPrecondition, `key "password"`},
		"CHAP is not carried yet":       {withSecret(map[string]string{"username": "u", "password": "0123456789ab"}), csiserve.Unimplemented, "protocol iscsi is not supported yet"},
		"B-72 thin without a pool":      {thinWithoutPool, csiserve.InvalidArgument, "lvm.provisioningMode thin requires PillarStore"},
		"NFS is not carried yet":        {overNFS(mount(rwx)), csiserve.Unimplemented, "nfs is not supported yet"},
		"api 9.4 NFS and Block":         {overNFS(capability(true, writer)), csiserve.InvalidArgument, "raw block"},
		"F-51 NFS readers and writers":  {overNFS(mount(reader), mount(writer)), csiserve.InvalidArgument, "cannot be mixed"},
		"api 2.3 layout mismatch known": {layoutMismatch, csiserve.FailedPrecondition, "thin pool a, agent has b"},
		"B-23 target name taken":        {collision, csiserve.AlreadyExists, "would share target name"},
		"B-85 another claim":            {otherClaim, csiserve.AlreadyExists, "was made for claim UID"},
		"B-84 larger":                   {resized(2<<30, 0), csiserve.AlreadyExists, "required are"},
		"B-84 lower limit":              {resized(0, 1<<29), csiserve.AlreadyExists, "limit is"},
		"B-84 deleting":                 {found(func(s *v1alpha1.PillarVolumeStateStatus) { s.Deleting = true }), csiserve.Aborted, "is being deleted"},
		"B-84 recovery pending": {
			found(func(s *v1alpha1.PillarVolumeStateStatus) { s.Phase = v1alpha1.PhaseRecoveryPending }),
			csiserve.FailedPrecondition, "RecoveryPending",
		},
		"B-51 lifecycle changed": {changedUnder, csiserve.Aborted, "this operation"},
	})
}
