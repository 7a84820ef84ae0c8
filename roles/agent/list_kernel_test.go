package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pillar-csi/pillar/roles/agentpb"
)

// B-286, B-287, D-18: what the kernel has is listed, an orphan with it, a stranger's not; also
// after somebody unmounted configfs.
func TestAgent_lists_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.restore())
	m.must(m.create(1))
	m.must(m.export(2, host1))
	const orphan = "nqn.2026-01.com.bhyoo.pillar-csi:gone.pvc-9"
	for _, nqn := range []string{orphan, "nqn.2020-01.com.example:foreign"} {
		sub := filepath.Join(nvmetDir, "subsystems", nqn)
		m.must(os.MkdirAll(filepath.Join(sub, "namespaces/1"), 0o755))
		defer func() { m.must(errors.Join(os.Remove(sub+"/namespaces/1"), os.Remove(sub))) }()
	}
	conn, err := grpc.NewClient(testListen, grpc.WithTransportCredentials(insecure.NewCredentials()))
	m.must(err)
	defer conn.Close()
	raw := agentpb.NewAgentServiceClient(conn)
	for _, how := range []string{"mounted", "not mounted"} {
		if how == "not mounted" {
			m.must(unix.Unmount("/sys/kernel/config", 0))
		}
		exports, err := raw.ListExports(t.Context(), &agentpb.ListExportsRequest{})
		m.must(err)
		got := map[string]string{}
		for _, e := range exports.Exports {
			got[e.TargetId] = cmp.Diff([]any{e.Address, e.Port, e.Enabled, e.AclEnabled}, []any{testPortal.Address, int32(testPortal.Port), true, true})
		}
		if len(got) != 2 || got[testNQN] != "" || got[orphan] == "" {
			t.Errorf("configfs %s: ListExports = %v, want ours, and the orphan that serves nothing", how, exports)
		}
		volumes, err := raw.ListVolumes(t.Context(), &agentpb.ListVolumesRequest{Backend: "lvm-lv", Pool: testGroup})
		m.must(err)
		if len(volumes.Volumes) != 1 || !volumes.Volumes[0].Exported || volumes.Volumes[0].VolumeId != testID.String() || volumes.Volumes[0].SizeBytes != 8<<20 {
			t.Errorf("configfs %s: ListVolumes = %v, want %s, exported", how, volumes, testID)
		}
	}
	m.must(m.unexport(3))
	m.must(m.remove(3))
}
