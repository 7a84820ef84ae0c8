//go:build crashpoints

package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/uuid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/apiservertest"
	"github.com/pillar-csi/pillar/roles/controller/ledger"
	"github.com/pillar-csi/pillar/roles/controller/reconcile"
)

// controllerChild is a controller process of its own that a test may kill at an effect.
type controllerChild struct {
	csi.ControllerClient
	cmd *exec.Cmd
}

// startChild runs this binary as a controller. at is PILLAR_CRASH_AT, log a file for the
// effects; both may be empty.
func (b *bench) startChild(t *testing.T, kubeconfig, at, log string) *controllerChild {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	cmd := childCommand(kubeconfig, at, log, childSocket+"="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn := dial(t, socket)
	c := &controllerChild{csi.NewControllerClient(conn), cmd}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(dir)
	})
	return c
}

// childCommand runs this binary as a controller; what says as which.
func childCommand(kubeconfig, at, log, what string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), what, childKubeconfig+"="+kubeconfig, "PILLAR_CRASH_AT="+at, "PILLAR_CRASH_LOG="+log)
	cmd.Stderr = os.Stderr
	return cmd
}

// dial connects to a CSI socket that may not serve yet.
func dial(t *testing.T, socket string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond},
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true)); err != nil {
		t.Fatalf("probe %s: %v", socket, err)
	}
	return conn
}

func (b *bench) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, apiservertest.Kubeconfig(t, "crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// call is one CSI call of a volume's life.
type call struct {
	name string
	do   func(ctx context.Context, c csi.ControllerClient, v lived) error
}

// life is every call that changes a volume, in the order of a claim and its pod.
var life = []call{
	{"create", func(ctx context.Context, c csi.ControllerClient, v lived) error {
		_, err := c.CreateVolume(ctx, v.create)
		return err
	}},
	{"publish", func(ctx context.Context, c csi.ControllerClient, v lived) error {
		_, err := c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{VolumeId: v.id, NodeId: v.node, VolumeCapability: mount(writer)})
		return err
	}},
	{"expand", func(ctx context.Context, c csi.ControllerClient, v lived) error {
		_, err := c.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{VolumeId: v.id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 << 30}})
		return err
	}},
	{"unpublish", func(ctx context.Context, c csi.ControllerClient, v lived) error {
		_, err := c.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: v.id, NodeId: v.node})
		return err
	}},
	{"delete", func(ctx context.Context, c csi.ControllerClient, v lived) error {
		_, err := c.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
		return err
	}},
}

// points names every crash a life can have: before and after each of its effects. What
// the agent was asked for lies between two of them.
func (b *bench) points(t *testing.T, kubeconfig string) []string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "effects")
	c := b.startChild(t, kubeconfig, "", log)
	for _, step := range life {
		if err := step.do(t.Context(), c, b.lived("pvc")); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
	}
	effects := lines(t, log)
	if len(effects) != 12 {
		t.Fatalf("effects of a life = %v, want 4 of create, 1 of publish, 2 of expand, 2 of unpublish, 3 of delete", effects)
	}
	t.Logf("effects:\n%s", strings.Join(effects, "\n"))
	return around(effects)
}

// TestCrash kills the controller at every effect of a life. The new leader, which lived
// beside it, repeats the call that was cut off and goes on; or it gives the volume up, as
// after the claim and its pod were deleted meanwhile; or the reaper finds what a create
// left. Either way nothing may be there twice, be left, or come of a request that was still
// on its way (N-1, N-22, N-51).
func TestCrash(t *testing.T) {
	b := newBench(t)
	kubeconfig, w := b.kubeconfig(t), b.watch()
	leader := b.client(t)
	points := b.points(t, kubeconfig)
	reap := call{"reap", func(ctx context.Context, _ csi.ControllerClient, v lived) error { return b.reapCut(ctx, v) }}
	ways := map[string]struct {
		points []string
		rest   func(cut int) []call
	}{
		"goes on":  {points, func(cut int) []call { return life[cut:] }},
		"gives up": {points[8:18], func(int) []call { return life[3:] }},            // after create, before delete
		"reaps":    {points[:8], func(int) []call { return []call{reap, life[4]} }}, // in create
	}
	t.Run("killed", func(t *testing.T) {
		for way, what := range ways {
			for _, at := range what.points {
				t.Run(way+" "+at, func(t *testing.T) {
					t.Parallel()
					v := b.volumeNamed("pvc-" + uuid.NewString())
					cut := b.crash(t, kubeconfig, at, v)
					for _, step := range what.rest(cut) {
						if err := step.do(t.Context(), leader, v); err != nil {
							t.Fatalf("%s by the new leader: %v", step.name, err)
						}
					}
					if state := b.state(v.create.Name); state != nil {
						t.Errorf("left of the record: %+v", state.Status)
					}
				})
			}
		}
	})
	w.redeliver("after every crash")
	if left := b.agent.picture(); len(left) > 0 {
		t.Errorf("left on the agent: %v", left)
	}
	w.verdict()
}

// reapCut has the reaper look at what a create that was cut off left, and fails unless that
// is gone then. A Ready volume may have been reported, and stays.
func (b *bench) reapCut(ctx context.Context, v lived) error {
	want, state := reconcile.Reaped, b.state(v.create.Name)
	if state == nil || ledger.Phase(state) == v1alpha1.PhaseReady {
		want = ""
	}
	got, err := b.nextHour().Look(ctx, v.create.Name)
	if got != want {
		return errors.Join(err, fmt.Errorf("reaper = %q, want %q", got, want))
	}
	return err
}

// TestCrash_reaper kills the controller at every effect of reaping what a killed create
// left; the next reaper ends it (N-21, N-51).
func TestCrash_reaper(t *testing.T) {
	b := newBench(t)
	kubeconfig, w := b.kubeconfig(t), b.watch()
	abandon := func(t *testing.T) lived {
		v := b.volumeNamed("pvc-" + uuid.NewString())
		b.crash(t, kubeconfig, "after:3", v) // the backend is recorded, its export is not
		return v
	}
	v, log := abandon(t), filepath.Join(t.TempDir(), "effects")
	if err := childCommand(kubeconfig, "", log, childReap+"="+v.create.Name).Run(); err != nil {
		t.Fatal(err)
	}
	effects := lines(t, log)
	if len(effects) != 3 {
		t.Fatalf("effects of a reap = %v, want its begin, the deletion and the finalizer", effects)
	}
	t.Run("killed", func(t *testing.T) {
		for _, at := range around(effects) {
			t.Run(at, func(t *testing.T) {
				t.Parallel()
				v := abandon(t)
				wantKilled(t, childCommand(kubeconfig, at, "", childReap+"="+v.create.Name).Run())
				if _, err := b.nextHour().Look(t.Context(), v.create.Name); err != nil {
					t.Errorf("the next reaper: %v", err)
				}
				if state := b.state(v.create.Name); state != nil {
					t.Errorf("left of the record: %+v", state.Status)
				}
			})
		}
	})
	w.redeliver("after every crash")
	if left := b.agent.picture(); len(left) > 0 {
		t.Errorf("left on the agent: %v", left)
	}
	w.verdict()
}

// wantKilled fails unless a process ended by SIGKILL.
func wantKilled(t *testing.T, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended with %v, want SIGKILL", err)
	}
}

// lines are those of a file.
func lines(t *testing.T, path string) []string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(raw)), "\n")
}

// around names the crashes before and after each effect.
func around(effects []string) []string {
	var points []string
	for n := range effects {
		points = append(points, fmt.Sprintf("before:%d", n+1), fmt.Sprintf("after:%d", n+1))
	}
	return points
}

// crash goes through a life in a child that dies at the point, and answers the number of
// the call that was cut off.
func (b *bench) crash(t *testing.T, kubeconfig, at string, v lived) int {
	t.Helper()
	doomed := b.startChild(t, kubeconfig, at, "")
	for n, step := range life {
		if err := step.do(t.Context(), doomed, v); err == nil {
			continue
		}
		wantKilled(t, doomed.cmd.Wait())
		return n
	}
	t.Fatalf("the child survived %s", at)
	return 0
}

// client serves the bench's own server on a socket and answers a client of it.
func (b *bench) client(t *testing.T) csi.ControllerClient {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx, filepath.Join(dir, "s")) }()
	conn := dial(t, filepath.Join(dir, "s"))
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		os.RemoveAll(dir)
	})
	return csi.NewControllerClient(conn)
}
