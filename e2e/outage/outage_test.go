//go:build lab

package outage

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab"
	"github.com/pillar-csi/pillar/fencing"
	"github.com/pillar-csi/pillar/roles/agentrpc"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

const (
	group   = "vg0"
	nqn     = "nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1"
	hostID  = "11111111-1111-4111-8111-111111111111"
	hostNQN = "nqn.2014-08.org.nvmexpress:uuid:" + hostID
)

var (
	volume = storage.VolumeID{Pool: group, Name: "pvc-1"}
	portal = transport.Portal{Address: "10.66.0.11", Port: 4420}
)

// outages are how often the storage node goes down.
const outages = 2

// world is the two guests.
type world struct {
	t               *testing.T
	ctx             context.Context
	storage, worker *lab.Guest
	*agentrpc.Client
}

// N-11, B-480, B-488: the storage node is killed while a worker writes. After boot and
// restore the worker goes on: the same mount of the same device, without an error, with
// every record it was told is on disk, and its kernel saw no identity change.
func TestStorage_killedUnderAWriter(t *testing.T) {
	w := newWorld(t)
	w.serve()
	ctx := w.ctx
	_, err := w.CreateVolume(ctx, token(1), storage.Spec{ID: volume, Bytes: 256 << 20, Backend: storage.LVMLV,
		LVM: &storage.LVMParams{VolumeGroup: group, Mode: "linear"}})
	w.must(err)
	w.restore() // of generation 2: the export
	device := w.run(w.worker, "attach")
	w.do(w.worker, "mkfs.ext4 -q "+device+" && mount "+device+" "+dataDir)
	w.do(w.worker, roleEnv+"=scribe nohup /host/program >/run/scribe.log 2>&1 & echo $! >/run/scribe.pid")
	w.written(0, 20)
	before := w.looks(device)

	for range outages {
		w.must(w.storage.Kill())
		last := w.acknowledged()
		w.must(w.storage.Start(ctx))
		w.serve()
		w.restore()
		w.written(last, 50)
		if after := w.looks(device); after != before {
			t.Errorf("after the outage the worker has\n%s\nbefore it had\n%s", after, before)
		}
	}
	w.do(w.worker, "kill $(cat /run/scribe.pid); for i in $(seq 100); do kill -0 $(cat /run/scribe.pid) 2>/dev/null || break; sleep 0.1; done; cat /run/scribe.log; ! grep . /run/scribe.log")
	w.quiet()
	w.do(w.worker, "umount "+dataDir)
	w.run(w.worker, "detach")
	w.do(w.storage, "e2fsck -fn /dev/"+volume.String())
	if lost := w.run(w.storage, "read", "PILLAR_OUTAGE_LAST="+strconv.Itoa(w.acknowledged())); lost != "" {
		t.Errorf("lost, though acknowledged:\n%s", lost)
	}
	w.must(w.UnexportVolume(ctx, token(3), storage.LVMLV, transport.NVMeTCP, volume))
	w.must(w.DeleteVolume(ctx, token(3), storage.LVMLV, volume))
}

func token(generation int64) fencing.Token {
	return fencing.Token{UID: "5f3f5e1f-0a11-4c6e-9d0b-2f1b0a5c7c5e", Generation: generation}
}

func newWorld(t *testing.T) *world {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	l, err := lab.Open(ctx, lab.Config{Log: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, ctx: ctx}
	t.Cleanup(func() { w.must(l.Close()) })
	program, err := os.ReadFile(os.Args[0])
	w.must(err)
	w.must(os.WriteFile(filepath.Join(l.HostDir, "program"), program, 0o755))
	w.storage, err = l.Boot(ctx, lab.GuestSpec{Name: "storage-1", Address: portal.Address, Disks: []string{"1GiB"},
		Modules: []string{"dm-mod", "nvmet", "nvmet-tcp"}})
	w.must(err)
	w.worker, err = l.Boot(ctx, lab.GuestSpec{Name: "worker-1", Address: "10.66.0.21", CPU: 1, Modules: []string{"nvme-tcp"}})
	w.must(err)
	w.do(w.storage, "export DM_DISABLE_UDEV=1; vgcreate -q -y "+group+" "+w.storage.Disks[0])
	w.Client, err = agentrpc.Dial(portal.Address+":9500", agentrpc.Config{})
	w.must(err)
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// do runs a script that must succeed.
func (w *world) do(g *lab.Guest, script string) string {
	w.t.Helper()
	out, err := g.Exec(w.ctx, script)
	if err != nil {
		w.t.Fatalf("%s: %s: %v", g.Spec.Name, script, err)
	}
	return strings.TrimSpace(out)
}

// run runs one of our programs to its end.
func (w *world) run(g *lab.Guest, role string, env ...string) string {
	w.t.Helper()
	return w.do(g, strings.Join(append(env, roleEnv+"="+role, "/host/program"), " "))
}

// serve starts the agent and waits until it answers.
func (w *world) serve() {
	w.t.Helper()
	w.do(w.storage, roleEnv+"=agent nohup /host/program >>/var/log/agent.log 2>&1 &")
	for w.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(w.ctx, time.Second)
		_, err := w.Health(ctx)
		cancel()
		if err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatalf("the agent does not answer:\n%s", w.do(w.storage, "cat /var/log/agent.log"))
}

// restore sends the complete request.
func (w *world) restore() {
	w.t.Helper()
	results, err := w.Reconcile(w.ctx, true, []agentrpc.Item{{Token: token(2), Backend: storage.LVMLV, Ready: true,
		Export: transport.Export{Kind: transport.NVMeTCP, Volume: volume.String(), Portal: portal, ACL: true, Initiators: []string{hostNQN}}}})
	w.must(err)
	w.must(results[0].Err)
}

// acknowledged answers the newest record that the scribe was told is on disk.
func (w *world) acknowledged() int {
	w.t.Helper()
	n, err := strconv.Atoi(w.do(w.worker, "cat "+acknowledged+" 2>/dev/null || echo 0"))
	w.must(err)
	return n
}

// written waits until the scribe has come so much further.
func (w *world) written(from, more int) {
	w.t.Helper()
	for start := time.Now(); w.acknowledged() < from+more; time.Sleep(100 * time.Millisecond) {
		if w.ctx.Err() != nil || time.Since(start) > 3*time.Minute {
			w.t.Fatalf("the scribe does not go on after %d: %s\n%s", w.acknowledged(), w.do(w.worker, "cat /run/scribe.log"), w.do(w.worker, "dmesg | tail -30"))
		}
	}
}

// looks answers what must not change for the worker: the mount with its ID, the device with
// its numbers and identity, and the scribe's process.
func (w *world) looks(device string) string {
	w.t.Helper()
	name := filepath.Base(device)
	return w.do(w.worker, "grep ' "+dataDir+" ' /proc/self/mountinfo; cat /sys/block/"+name+"/dev; cat /sys/block/"+name+
		"/uuid /sys/block/"+name+"/nguid; kill -0 $(cat /run/scribe.pid) && cat /run/scribe.pid")
}

// alarming are words of the worker's kernel about another identity, a lost write or a dead
// filesystem. Errors of reads on the path (nvme0c0n1) are not: those ahead of need are not
// repeated by nvme_decide_disposition of drivers/nvme/host/core.c, and nobody misses them.
var alarming = []string{
	"identifiers changed", "IDs don't match", "duplicate IDs", "(WRITE)", "Buffer I/O error", "lost async page write",
	"EXT4-fs error", "EXT4-fs warning", "Remounting filesystem read-only", "Removing ctrl",
}

// quiet wants nothing alarming, of a kernel that saw each outage.
func (w *world) quiet() {
	w.t.Helper()
	log := w.do(w.worker, "dmesg")
	for _, bad := range alarming {
		for line := range strings.Lines(log) {
			if strings.Contains(line, bad) {
				w.t.Errorf("the worker's kernel says %q", strings.TrimSpace(line))
			}
		}
	}
	if n := strings.Count(log, "Successfully reconnected"); n != outages {
		w.t.Errorf("the worker's kernel reconnected %d times, want %d:\n%s", n, outages, log)
	}
}
