//go:build crashpoints

package controller

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// child is a controller process of its own that a test may kill at an effect.
type child struct {
	csi.ControllerClient
	cmd *exec.Cmd
}

// startChild runs this binary as a controller. at is PILLAR_CRASH_AT, log a file for the
// effects; both may be empty.
func (b *bench) startChild(t *testing.T, kubeconfig, at, log string) *child {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") // socket paths are short
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(dir, "s")
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childSocket+"="+socket, childKubeconfig+"="+kubeconfig, "PILLAR_CRASH_AT="+at, "PILLAR_CRASH_LOG="+log)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}, // until it serves
	}))
	if err != nil {
		t.Fatal(err)
	}
	c := &child{csi.NewControllerClient(conn), cmd}
	t.Cleanup(func() {
		conn.Close()
		cmd.Process.Kill()
		cmd.Wait()
		os.RemoveAll(dir)
	})
	_, err = csi.NewIdentityClient(conn).Probe(t.Context(), &csi.ProbeRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatalf("probe child: %v", err)
	}
	return c
}

func (b *bench) kubeconfig(t *testing.T) string {
	t.Helper()
	user, err := apiserver.env.AddUser(envtest.User{Name: "crash", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := user.KubeConfig()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// createAndPublish is the operation whose every crash is walked through.
func (b *bench) createAndPublish(ctx context.Context, c csi.ControllerClient, name string) (id string, err error) {
	resp, err := c.CreateVolume(ctx, b.createRequest(name))
	if err != nil {
		return "", err
	}
	id = resp.Volume.VolumeId
	_, err = c.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: b.name + "w1", VolumeCapability: mount(writer),
	})
	return id, err
}

// points names every crash of one run: before and after each of its effects.
func (b *bench) points(t *testing.T, kubeconfig string) []string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "effects")
	c := b.startChild(t, kubeconfig, "", log)
	if _, err := b.createAndPublish(t.Context(), c, "pvc-0"); err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	effects := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(effects) < 5 {
		t.Fatalf("effects of create and publish = %v, want at least record, attempt, backend, export, reservation", effects)
	}
	t.Logf("effects:\n%s", raw)
	var points []string
	for n := range effects {
		points = append(points, fmt.Sprintf("before:%d", n+1), fmt.Sprintf("after:%d", n+1))
	}
	return points
}

// TestCrash_createAndPublish kills the controller at every effect. The retry must arrive
// at one backend, one export and one publication, whatever was done already.
func TestCrash_createAndPublish(t *testing.T) {
	b := newBench(t)
	kubeconfig := b.kubeconfig(t)
	for i, at := range b.points(t, kubeconfig) {
		t.Run(at, func(t *testing.T) {
			name := fmt.Sprintf("pvc-%d", i+1)
			_, _, creates := b.agent.have()
			b.crash(t, kubeconfig, at, name)
			id, err := b.createAndPublish(t.Context(), b.startChild(t, kubeconfig, "", ""), name)
			if err != nil {
				t.Fatalf("retry after %s: %v", at, err)
			}
			b.wantOne(t, name, creates)
			b.clear(t, id)
		})
	}
}

// TestCrash_thenDelete kills the controller at every effect and then gives the volume up:
// nothing may be left.
func TestCrash_thenDelete(t *testing.T) {
	b := newBench(t)
	kubeconfig := b.kubeconfig(t)
	points := b.points(t, kubeconfig)
	b.clear(t, b.name+"/nvmeof-tcp/lvm-lv/vg0/"+b.name+"pvc-0")
	for i, at := range points {
		t.Run(at, func(t *testing.T) {
			name := fmt.Sprintf("pvc-%d", i+1)
			b.crash(t, kubeconfig, at, name)
			b.clear(t, b.name+"/nvmeof-tcp/lvm-lv/vg0/"+b.name+name)
			if volumes, exports, _ := b.agent.have(); len(volumes)+len(exports) > 0 {
				t.Errorf("left on the agent after %s: volumes %v, exports %v", at, volumes, exports)
			}
		})
	}
}

// crash runs the operation in a child that dies at the point.
func (b *bench) crash(t *testing.T, kubeconfig, at, name string) {
	t.Helper()
	doomed := b.startChild(t, kubeconfig, at, "")
	if _, err := b.createAndPublish(t.Context(), doomed, name); err == nil {
		t.Fatalf("the child survived %s", at)
	}
	if err := doomed.cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended with %v, want SIGKILL", err)
	}
}

// wantOne checks that the volume has one backend made once, one export and one record.
func (b *bench) wantOne(t *testing.T, name string, createsBefore int) {
	t.Helper()
	volume := "vg0/" + b.name + name
	_, _, creates := b.agent.have()
	if creates != createsBefore+1 {
		t.Errorf("backends made = %d, want 1", creates-createsBefore)
	}
	b.agent.mu.Lock()
	_, exists := b.agent.volumes[volume]
	initiators := b.agent.exports[volume].Initiators
	b.agent.mu.Unlock()
	if diff := cmp.Diff([]string{"nqn.2014-08.org.nvmexpress:uuid:w1"}, initiators); !exists || diff != "" {
		t.Errorf("volume exists = %t, admitted initiators (-want +got):\n%s", exists, diff)
	}
	v := b.state(b.name + name)
	if v == nil || v.Status.Phase != v1alpha1.PhaseReady || len(v.Status.PublishedNodes) != 1 {
		t.Errorf("record = %+v, want Ready with one publication", v)
	}
}

// clear unpublishes and deletes the volume.
func (b *bench) clear(t *testing.T, id string) {
	t.Helper()
	if err := b.unpublish(id, ""); err != nil {
		t.Fatalf("unpublish %s: %v", id, err)
	}
	if err := b.delete(id); err != nil {
		t.Fatalf("delete %s: %v", id, err)
	}
}
