package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// memoryServer is an open agent of two pools on a machine in memory.
func memoryServer(t *testing.T) *server {
	t.Helper()
	st, err := openState(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.close() })
	f, err := parseFile([]byte(simulatedConfig))
	if err != nil {
		t.Fatal(err)
	}
	m, err := dryrun.NewMachine(st.dir, f.pools(10<<30), func(dryrun.Effect) {})
	if err != nil {
		t.Fatal(err)
	}
	s, err := simulatedNode(m).server(f, st, zap.NewNop())
	if err == nil {
		_, err = s.gate.Restore(t.Context(), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const exampleNQN = "nqn.2026-01.com.bhyoo.pillar-csi:vg0." + exampleName

// B-286, B-287: the listings say what there is now.
func TestServer_lists(t *testing.T) {
	s, ctx := memoryServer(t), t.Context()
	exports := func() []*agentpb.ExportInfo {
		t.Helper()
		got, err := s.ListExports(ctx, &agentpb.ListExportsRequest{})
		if err != nil {
			t.Errorf("ListExports = %v", err)
		}
		return got.GetExports()
	}
	if got := exports(); len(got) > 0 {
		t.Errorf("ListExports of a new agent = %v, want none", got)
	}
	if err := s.example(ctx, &s.volumes.pools[0]); err != nil {
		t.Fatal(err)
	}
	want := []*agentpb.ExportInfo{{TargetId: exampleNQN, Address: exampleBind, Port: 4420, VolumeRef: exampleNQN, Enabled: true, AclEnabled: true, Initiators: []string{exampleHost}}}
	if diff := cmp.Diff(want, exports(), protocmp.Transform()); diff != "" {
		t.Errorf("ListExports (-want +got):\n%s", diff)
	}
	for pool, want := range map[string][]*agentpb.VolumeInfo{
		"vg0":  {{VolumeId: "vg0/" + exampleName, SizeBytes: exampleBytes, DevicePath: "/dev/vg0/" + exampleName, Exported: true}},
		"tank": nil,
	} {
		got, err := s.ListVolumes(ctx, &agentpb.ListVolumesRequest{Pool: pool, Backend: map[string]string{"vg0": "lvm-lv", "tank": "zfs-zvol"}[pool]})
		if diff := cmp.Diff(want, got.GetVolumes(), protocmp.Transform()); err != nil || diff != "" {
			t.Errorf("ListVolumes of %s = %v (-want +got):\n%s", pool, err, diff)
		}
	}
	for _, tt := range []struct {
		backend, pool string
		want          error
	}{{"lvm-lv", "tank", storage.ErrNotFound}, {"", "vg0", storage.ErrInvalid}, {"zfs-dataset", "tank", storage.ErrUnsupported}} {
		if _, err := s.ListVolumes(ctx, &agentpb.ListVolumesRequest{Backend: tt.backend, Pool: tt.pool}); !errors.Is(err, tt.want) {
			t.Errorf("ListVolumes(%q, %q) = %v, want %v", tt.backend, tt.pool, err, tt.want)
		}
	}
}

// Exports go on while configfs is not mounted: nobody who cannot look says that there is none.
func TestServer_listsUnknown(t *testing.T) {
	s, ctx := memoryServer(t), t.Context()
	s.targets = targets{transport.NVMeTCP: unmounted{s.targets[transport.NVMeTCP]}}
	s.configfs = func() error { return errors.New("configfs cannot be mounted") }
	exports, err := s.ListExports(ctx, &agentpb.ListExportsRequest{})
	if err == nil || !strings.Contains(err.Error(), "configfs") {
		t.Errorf("ListExports without configfs = %v, %v, want an error", exports, err)
	}
	volumes, err := s.ListVolumes(ctx, &agentpb.ListVolumesRequest{Backend: "lvm-lv", Pool: "vg0"})
	if err == nil || !strings.Contains(err.Error(), "configfs") {
		t.Errorf("ListVolumes without configfs = %v, %v, want an error", volumes, err)
	}
}

// unmounted is a target whose part of configfs is not to be seen.
type unmounted struct{ target }

func (unmounted) Available(context.Context) error { return transport.ErrUnsupported }
