package controller

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/storage"
)

// TestServer_CreateVolume_says holds what `kubectl describe pvst` shows of a create that
// stopped, and that a failure that repeats is written once, under no generation of its own
// (B-53, B-58).
func TestServer_CreateVolume_says(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rpc                  string
		err                  error
		reason, ready        string
		backend              bool
		generation, attempts int64 // after the first attempt; added by each further one
	}{
		"no space":      {"CreateVolume", storage.ErrNoSpace, "ResourceExhausted", "CreateVolumeFailed", false, 1, 1},
		"a broken port": {"ExportVolume", errors.New("configfs is gone"), "Internal", "ExportVolumeFailed", true, 2, 0},
	}
	b := newBench(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req := b.createRequest(strings.ReplaceAll(name, " ", "-"))
			b.failing(test.rpc, test.err)
			create := func() *v1alpha1.PillarVolumeState {
				_, err := b.CreateVolume(t.Context(), req)
				if err == nil {
					t.Fatal("CreateVolume succeeded")
				}
				return b.state(req.Name)
			}
			first := create()
			f := first.Status.PartialFailure
			if f == nil || f.FailedOperation != test.rpc || f.Reason != test.reason || f.BackendCreated != test.backend || f.ExportCreated || !strings.Contains(f.Message, test.err.Error()) {
				t.Errorf("partialFailure = %+v, want %s, %s, backend %t and the agent's words", f, test.rpc, test.reason, test.backend)
			}
			if c := meta.FindStatusCondition(first.Status.Conditions, v1alpha1.Ready); c == nil || c.Status != "False" || c.Reason != test.ready || c.Message != f.Message {
				t.Errorf("Ready = %+v, want False, %s", c, test.ready)
			}
			second := create()
			if got := second.Status.PublicationGeneration; first.Status.PublicationGeneration != test.generation || got != test.generation+test.attempts {
				t.Errorf("generations = %d, %d, want %d and %d more", first.Status.PublicationGeneration, got, test.generation, test.attempts)
			}
			if !second.Status.PartialFailure.FailedAt.Equal(&f.FailedAt) || (second.ResourceVersion == first.ResourceVersion) != (test.attempts == 0) {
				t.Errorf("the same failure was written again: %+v, then %+v", first.Status, second.Status)
			}
			b.agent.set(func(a *fakeAgent) { a.fail = map[string]error{} })
			if _, err := b.CreateVolume(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if s := b.state(req.Name).Status; s.PartialFailure != nil || !meta.IsStatusConditionTrue(s.Conditions, v1alpha1.Ready) {
				t.Errorf("status after success = %+v", s)
			}
		})
	}
}

// TestServer_CreateVolume_reads: what a first attempt was planned with is not read again.
func TestServer_CreateVolume_reads(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	reads := map[string]int{}
	counting := b.rival(func(req *http.Request) error {
		if req.Method == http.MethodGet {
			reads[path.Base(req.URL.Path)]++
		}
		return nil
	})
	req := b.createRequest("pvc-o")
	forClaim(req, b.claim("claim-"+b.name, nil).Name)
	if _, err := counting.CreateVolume(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if n := reads["claim-"+b.name]; n != 1 {
		t.Errorf("the claim was read %d times, want once; all reads: %v", n, reads)
	}
}

func TestNote_cuts(t *testing.T) {
	v := &v1alpha1.PillarVolumeState{}
	long := strings.Repeat("ä", longest)
	if !note(v, "CreateVolume", "Internal", long) || note(v, "CreateVolume", "Internal", long) {
		t.Error("note: want a change once")
	}
	if got := v.Status.PartialFailure.Message; len(got) > longest || !strings.HasSuffix(got, "ä...") {
		t.Errorf("message of %d bytes ends in %q", len(got), got[len(got)-6:])
	}
}

// TestServer_CreateVolume_aboveLimit keeps a volume that came out too large (U-7): it is
// not made again, not exported, and serves a request that allows it.
func TestServer_CreateVolume_aboveLimit(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	req := b.createRequest("pvc-l")
	req.CapacityRange = &csi.CapacityRange{RequiredBytes: 1<<30 - 1, LimitBytes: 1<<30 - 1}
	for range 2 {
		_, err := b.CreateVolume(t.Context(), req)
		wantCode(t, "CreateVolume", err, csiserve.OutOfRange, "limit is")
	}
	wantCalls(t, b.agent, "CreateVolume g1")
	if s := b.state(req.Name).Status; s.Phase != v1alpha1.PhaseCreatePartial || s.PartialFailure.Reason != "OutOfRange" {
		t.Errorf("status = %+v, want CreatePartial for OutOfRange", s)
	}
	req.CapacityRange.LimitBytes = 0
	if _, err := b.CreateVolume(t.Context(), req); err != nil {
		t.Error(err)
	}
	wantCalls(t, b.agent, "ExportVolume g2")
}

// TestServer_CreateVolume_sizes are B-82 and U-6.
func TestServer_CreateVolume_sizes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tests := map[string]struct {
		size *csi.CapacityRange
		want int64
	}{
		"none":          {nil, 1 << 30},
		"a large limit": {&csi.CapacityRange{LimitBytes: 5 << 30}, 1 << 30},
		"a small limit": {&csi.CapacityRange{LimitBytes: 16 << 20}, 16 << 20},
		"rounded up":    {&csi.CapacityRange{RequiredBytes: 1, LimitBytes: 1 << 30}, 4 << 20},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req := b.createRequest(strings.ReplaceAll(name, " ", "-"))
			req.CapacityRange = test.size
			req.AccessibilityRequirements = &csi.TopologyRequirement{Requisite: []*csi.Topology{{Segments: map[string]string{"a": "b"}}}}
			resp, err := b.CreateVolume(t.Context(), req)
			if err != nil || resp.Volume.CapacityBytes != test.want || resp.Volume.AccessibleTopology != nil {
				t.Errorf("CreateVolume = %v, %v, want %d bytes, reachable from anywhere", resp, err, test.want)
			}
		})
	}
}

// TestServer_CreateVolume_lostAnswer has the caller give up while the agent works: the
// retry goes on from the record, whatever the agent did (B-83, N-22).
func TestServer_CreateVolume_lostAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.agent.set(func(a *fakeAgent) {
		a.see = func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			resp, err := handler(ctx, req)
			if _, ok := req.(*agentpb.CreateVolumeRequest); ok {
				<-ctx.Done() // made, and nobody hears of it
			}
			return resp, err
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	req := b.createRequest("pvc-t")
	_, err := b.CreateVolume(ctx, req)
	wantCode(t, "CreateVolume", err, csiserve.CodeOf(context.DeadlineExceeded), "create volume")
	if f := b.state(req.Name).Status.PartialFailure; f == nil || f.Reason != "DeadlineExceeded" {
		t.Errorf("partialFailure = %+v, want DeadlineExceeded", f)
	}
	b.agent.set(func(a *fakeAgent) { a.see = nil })
	if _, err := b.CreateVolume(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	wantCalls(t, b.agent, "CreateVolume g1", "CreateVolume g2", "ExportVolume g3")
	if _, _, creates := b.agent.have(); creates != 1 {
		t.Errorf("backends made = %d, want 1", creates)
	}
}

// TestCreateVolume_everyFault: one answer names what is wrong with the class's parameters,
// the claim's annotations, their documents and the capabilities.
func TestCreateVolume_everyFault(t *testing.T) {
	b := newBench(t)
	b.claim(b.name, map[string]string{
		v1alpha1.KeyPrefix + "xyz": "1", v1alpha1.FilesystemKey: "{fsType: zfs}", v1alpha1.ProtocolKey: "nvmeofTcp: {acl: true}",
	})
	ofClaim := []string{`unsupported PVC annotation "pillar-csi.bhyoo.com/xyz"`, "fsType is not supported (got zfs)", "nvmeofTcp.acl is structural"}
	tests := map[string]struct {
		change func(r *csi.CreateVolumeRequest)
		want   []string
	}{
		"claim": {func(*csi.CreateVolumeRequest) {}, ofClaim},
		"and mode": {
			func(r *csi.CreateVolumeRequest) {
				r.VolumeCapabilities = []*csi.VolumeCapability{mount(csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER)}
			},
			append([]string{"volume_capabilities: ", "MULTI_NODE_MULTI_WRITER"}, ofClaim...),
		},
		"and class": {
			func(r *csi.CreateVolumeRequest) {
				r.Parameters[v1alpha1.StoreRefKey], r.Parameters[v1alpha1.KeyPrefix+"color"] = "a/b", "red"
			},
			append([]string{`unsupported StorageClass parameter "pillar-csi.bhyoo.com/color"`, "store-ref cannot stand beside", "store-ref: is no name of a Kubernetes object (got a/b)"}, ofClaim...),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			req := b.createRequest("x")
			forClaim(req, b.name)
			test.change(req)
			_, err := b.CreateVolume(t.Context(), req)
			for _, want := range test.want {
				wantCode(t, "CreateVolume", err, csiserve.InvalidArgument, want)
			}
		})
	}
}
