package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/transport"
)

// items are volumes of the group, made by an agent that is open, each to be exported.
func (m *machine) items(count int) (items []agentrpc.Item) {
	m.t.Helper()
	for i := range count {
		id := storage.VolumeID{Pool: testGroup, Name: fmt.Sprintf("pvc-%d", i)}
		tok := fencing.Token{UID: "uid-" + id.Name, Generation: 1}
		s := m.spec(4 << 20)
		s.ID = id
		_, err := m.CreateVolume(m.t.Context(), tok, s)
		m.must(err)
		e := testExport(host1)
		e.Volume = id.String()
		items = append(items, agentrpc.Item{Token: tok, Backend: storage.LVMLV, Export: e, Ready: true})
	}
	return items
}

// firstLink answers, when a port first serves anything, how many namespaces are enabled.
func (m *machine) firstLink(ctx context.Context) <-chan int {
	enabled := make(chan int, 1)
	go func() {
		for ctx.Err() == nil {
			if links, _ := filepath.Glob(nvmetDir + "/ports/*/subsystems/*"); len(links) > 0 {
				break
			}
			time.Sleep(20 * time.Millisecond) // a guest has one processor
		}
		n := 0
		files, _ := filepath.Glob(nvmetDir + "/subsystems/*/namespaces/1/enable")
		for _, f := range files {
			if text, err := os.ReadFile(f); err == nil && strings.TrimSpace(string(text)) == "1" {
				n++
			}
		}
		enabled <- n
	}()
	return enabled
}

// B-269, B-274: after a reboot nothing is mounted, active or exported. The agent mounts
// configfs, activates the volumes it is told of and no other, and a port opens when all of
// them stand behind it.
func TestAgent_restoreAfterReboot_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.restore())
	items := m.items(6)
	m.must(m.run("lvcreate", "--yes", "--extents", "1", "--name", "unasked", testGroup))
	m.reboot()
	m.must(unix.Unmount("/sys/kernel/config", 0))

	m.mustStart()
	if links := m.glob("ports/*/subsystems/*"); len(links) > 0 {
		t.Errorf("exported before the complete request: %q", links)
	}
	watch, cancel := context.WithCancel(t.Context())
	defer cancel()
	enabled := m.firstLink(watch)
	m.must(m.restore(items...))
	if n := <-enabled; n != len(items) {
		t.Errorf("%d namespaces were enabled when the port opened, want all %d", n, len(items))
	}
	if links := m.glob("ports/*/subsystems/*"); len(links) != len(items) {
		t.Errorf("%d links, want %d", len(links), len(items))
	}
	if _, err := os.Stat("/dev/" + testGroup + "/unasked"); err == nil {
		t.Error("an LV was activated that nobody asked for")
	}
}

// D-17, H-38: a volume that is gone costs those at other ports neither time nor service, and
// those at its own the time that a port is held.
func TestAgent_restoreMissing_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.restore())
	items := m.items(4)
	m.reboot()
	m.must(m.run("lvremove", "--yes", testGroup+"/pvc-0"))
	items[0].Export.Portal.Port, items[1].Export.Portal.Port = 14421, 14421

	m.mustStart()
	begun := time.Now()
	results, err := m.Reconcile(t.Context(), true, items)
	took := time.Since(begun)
	m.must(err)
	want := map[string]error{items[0].Export.Volume: storage.ErrPrecondition, items[1].Export.Volume: agentrpc.ErrUnavailable}
	for _, r := range results {
		if !errors.Is(r.Err, want[r.Volume]) {
			t.Errorf("%s: %v, want %v", r.Volume, r.Err, want[r.Volume])
		}
	}
	if links := m.glob("ports/*/subsystems/*"); len(links) != 2 || took > 20*time.Second {
		t.Errorf("served after %v: %q, want the two of the other port", took, links)
	}
	if h, err := m.Health(t.Context()); err != nil || !h.Gated {
		t.Errorf("Health = %+v, %v, want a gate that is closed while a port is held", h, err)
	}
}

// B-272: what takes access or a volume away works before the complete request has come.
func TestAgent_gated_kernel(t *testing.T) {
	m := newMachine(t)
	m.mustStart()
	m.must(m.restore())
	m.must(m.create(1))
	m.must(m.export(2, host1))
	m.must(m.stop())

	m.mustStart()
	ctx := t.Context()
	m.must(m.DenyInitiator(ctx, token(3), storage.LVMLV, transport.NVMeTCP, testID, host1))
	m.wantExport()
	size, err := m.ExpandVolume(ctx, token(4), storage.LVMLV, transport.NVMeTCP, testID, 16<<20)
	if err != nil || size != 16<<20 {
		t.Errorf("ExpandVolume while gated = %d, %v, want 16 MiB", size, err)
	}
	for name, err := range map[string]error{
		"export": m.export(4, host1), "grant": m.AllowInitiator(ctx, token(4), storage.LVMLV, transport.NVMeTCP, testID, host1, true),
	} {
		if !errors.Is(err, agentrpc.ErrUnavailable) || !strings.Contains(err.Error(), "export restore pending") {
			t.Errorf("%s while gated = %v, want ErrUnavailable: export restore pending", name, err)
		}
	}
	m.wantExport()
	m.must(m.unexport(5))
	m.must(m.remove(5))
	m.wantNothing()
}

// wedged is a host on which the programs that ask for one group hang, as they do when its
// disk no longer answers. They are real and get killed.
type wedged struct {
	host.Exec
	group string
}

func (w wedged) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	if slices.Contains(args, w.group) || strings.HasPrefix(args[len(args)-1], w.group+"/") {
		return w.Exec.Run(ctx, "sleep", "600")
	}
	return w.Exec.Run(ctx, name, args...)
}

// One pool no longer answers. Its volumes fail, in the time of one; those of the other pool
// are served.
func TestAgent_restoreHangingPool_kernel(t *testing.T) {
	const dead = "pillar-dead"
	m := newMachine(t)
	m.backend += ", {lvm: {volumeGroup: " + dead + "}}"
	m.mustStart()
	m.must(m.restore())
	items := m.items(3)
	for i := range 30 {
		it := items[0]
		it.Export.Volume, it.Export.Portal.Port = fmt.Sprintf("%s/pvc-%d", dead, i), 14421
		items = append(items, it)
	}
	m.reboot()

	m.programs = wedged{group: dead}
	m.mustStart()
	begun := time.Now()
	results, err := m.Reconcile(t.Context(), true, items)
	m.must(err)
	for _, r := range results {
		if hung := strings.HasPrefix(r.Volume, dead+"/"); hung != (r.Err != nil) {
			t.Errorf("%s: %v, want an error: %v", r.Volume, r.Err, hung)
		}
	}
	if took := time.Since(begun); took > 40*time.Second {
		t.Errorf("the request took %v, want the time of one look", took)
	}
	if links := m.glob("ports/*/subsystems/*"); len(links) != 3 {
		t.Errorf("served: %q, want those of the pool that is well", links)
	}
}
