//go:build lab

// These tests boot guests. Run them in a lab:
//
//	lab enter -- go test -tags lab ./e2e/lab
package lab_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab"
	"github.com/pillar-csi/pillar/e2e/lab/agent"
)

// testWait ends a test whose guest hangs: no test takes longer than a minute, also in QEMU.
const testWait = 5 * time.Minute

func open(t *testing.T) (context.Context, *lab.Lab) {
	t.Helper()
	return openConfig(t, lab.Config{})
}

func openConfig(t *testing.T, config lab.Config) (context.Context, *lab.Lab) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testWait)
	t.Cleanup(cancel)
	config.Log = t.Output()
	l, err := lab.Open(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
	return ctx, l
}

func boot(t *testing.T, ctx context.Context, l *lab.Lab, spec lab.GuestSpec) *lab.Guest {
	t.Helper()
	g, err := l.Boot(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// do runs a script that must succeed and returns its trimmed output.
func do(t *testing.T, ctx context.Context, g *lab.Guest, script string) string {
	t.Helper()
	out, err := g.Exec(ctx, "set -e\n"+script)
	if err != nil {
		t.Fatalf("%s: %s: %v", g.Spec.Name, script, err)
	}
	return strings.TrimSpace(out)
}

func TestGuest_Exec(t *testing.T) {
	ctx, l := open(t)
	g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11"})
	tests := map[string]struct {
		script, out string
		code        int
	}{
		"output and error in order": {script: "echo one; echo two >&2; echo three", out: "one\ntwo\nthree\n"},
		"exit code":                 {script: "echo no; exit 7", out: "no\n", code: 7},
		"signal":                    {script: "kill -9 $$", code: 137},
		"a daemon holds nothing up": {script: "sleep 1000 & echo started", out: "started\n"},
		"host name":                 {script: "hostname", out: "storage-1\n"},
		"shared mounts":             {script: "findmnt -no PROPAGATION /", out: "shared\n"},
		"clock speed for cAdvisor":  {script: "grep -c 'cpu MHz' /proc/cpuinfo | sed 's/[1-9]/yes/'", out: "yes\n"},
		"controllers handed down":   {script: "tr ' ' '\\n' </sys/fs/cgroup/cgroup.subtree_control | grep -c -E 'memory|pids'", out: "2\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := g.Exec(ctx, test.script)
			var exit *lab.ExitError
			code := 0
			if errors.As(err, &exit) {
				code = exit.Code
			} else if err != nil {
				t.Fatal(err)
			}
			if out != test.out || code != test.code {
				t.Errorf("Exec(%q) = %q, code %d, want %q, code %d", test.script, out, code, test.out, test.code)
			}
		})
	}
}

func TestGuest_files(t *testing.T) {
	ctx, l := open(t)
	g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11"})
	want := bytes.Repeat([]byte("pillar"), 100_000)
	if err := g.Put(ctx, "/var/deep/file", want, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := g.Get(ctx, "/var/deep/file"); err != nil || !bytes.Equal(got, want) {
		t.Errorf("Get() = %d bytes, %v, want %d bytes", len(got), err, len(want))
	}
	if mode := do(t, ctx, g, "stat -c %a /var/deep/file"); mode != "600" {
		t.Errorf("mode = %s, want 600", mode)
	}
	if _, err := g.Get(ctx, "/var/nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get(missing) = %v, want fs.ErrNotExist", err)
	}
	if err := os.WriteFile(filepath.Join(l.HostDir, "late"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := do(t, ctx, g, "cat /host/late"); got != "hello" {
		t.Errorf("/host/late = %q, want hello", got)
	}
	if _, err := g.Exec(ctx, "touch /host/no"); err == nil {
		t.Error("/host is writable")
	}
}

func TestGuest_Reboot(t *testing.T) {
	ctx, l := open(t)
	g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11", Disks: []string{"64MiB"}})
	id := do(t, ctx, g, `echo kept >/etc/pillar; echo kept >/var/lib/pillar; touch /gone
echo kept | dd of=`+g.Disks[0]+` conv=fsync status=none; cat /etc/machine-id`)
	if err := g.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	got := do(t, ctx, g, "cat /etc/pillar /var/lib/pillar; head -c4 "+g.Disks[0]+"; echo; cat /etc/machine-id; ls /gone 2>&1 || true")
	want := "kept\nkept\nkept\n" + id + "\nls: cannot access '/gone': No such file or directory"
	if got != want {
		t.Errorf("after the reboot: %q, want %q", got, want)
	}
}

func TestGuest_Kill(t *testing.T) {
	ctx, l := open(t)
	g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11"})
	failed := make(chan error, 1)
	go func() {
		_, err := g.Exec(ctx, "sleep 1000")
		failed <- err
	}()
	time.Sleep(300 * time.Millisecond) // the script should run; if not, the test is only weaker
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, lab.ErrDown) {
		t.Errorf("Exec() over a kill = %v, want ErrDown", err)
	}
	if left, _ := exec.Command("pgrep", "-a", "linux.uml|qemu").Output(); len(left) > 0 {
		t.Errorf("processes left: %s", left)
	}
	if err := g.Start(ctx); err != nil {
		t.Fatal(err)
	}
	do(t, ctx, g, "true")
}

func TestGuest_Cut(t *testing.T) {
	ctx, l := open(t)
	g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11"})
	if err := g.Cut(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := g.Exec(short, "true"); err == nil {
		t.Error("a guest that is cut off answered")
	}
	if err := g.Heal(); err != nil {
		t.Fatal(err)
	}
	do(t, ctx, g, "true")
}

func TestLab_Boot_trouble(t *testing.T) {
	ctx, l := open(t)
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11", Disks: []string{image}})
	if _, err := l.Boot(ctx, lab.GuestSpec{Name: "worker-1", Address: "10.66.0.21", Disks: []string{image}}); err == nil {
		t.Error("Boot() with the disk of another guest succeeded")
	}
}

func TestLab_Boot_template(t *testing.T) {
	ctx, l := open(t)
	template := filepath.Join(t.TempDir(), "template.img")
	g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11", Var: template})
	do(t, ctx, g, "echo prepared >/var/lib/note; sync")
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"worker-1", "worker-2"} {
		g := boot(t, ctx, l, lab.GuestSpec{Name: name, Address: "10.66.0.2" + string(rune('1'+i)), CPU: i,
			VarBacking: template})
		if got := do(t, ctx, g, "cat /var/lib/note; echo own >/var/lib/note; sync"); got != "prepared" {
			t.Errorf("%s sees %q, want prepared", name, got)
		}
		if err := g.Reboot(ctx); err != nil {
			t.Fatal(err)
		}
		if got := do(t, ctx, g, "cat /var/lib/note"); got != "own" {
			t.Errorf("%s sees %q after its reboot, want own", name, got)
		}
	}
}

// TestLab_NVMe is the line the project stands on: a logical volume of one guest written and
// read by another through NVMe over TCP, by hand.
func TestLab_NVMe(t *testing.T) {
	ctx, l := open(t)
	storage := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11",
		Disks: []string{"1GiB"}, Modules: []string{"dm-mod", "nvmet", "nvmet-tcp"}})
	worker := boot(t, ctx, l, lab.GuestSpec{Name: "worker-1", Address: "10.66.0.21", CPU: 1, Modules: []string{"nvme-tcp"}})
	do(t, ctx, storage, `pvcreate -q `+storage.Disks[0]+`; vgcreate -q vg0 `+storage.Disks[0]+`
lvcreate -q -y -L 256M -n demo vg0
cd /sys/kernel/config/nvmet
mkdir subsystems/nqn.2026-01.test:demo; cd subsystems/nqn.2026-01.test:demo
echo 1 >attr_allow_any_host
mkdir namespaces/1; echo /dev/vg0/demo >namespaces/1/device_path; echo 1 >namespaces/1/enable
mkdir ../../ports/1; cd ../../ports/1
echo tcp >addr_trtype; echo ipv4 >addr_adrfam; echo 10.66.0.11 >addr_traddr; echo 4420 >addr_trsvcid
ln -s ../../subsystems/nqn.2026-01.test:demo subsystems/`)
	wrote := do(t, ctx, worker, `exec 3<>/dev/nvme-fabrics
printf transport=tcp,traddr=10.66.0.11,trsvcid=4420,nqn=nqn.2026-01.test:demo,hostnqn=nqn.2026-01.test:host,hostid=2f1b0a5c-7c5e-4f6e-9d0b-5f3f5e1f0a11 >&3
exec 3>&-
for i in $(seq 100); do [ -b /dev/nvme0n1 ] && break; sleep 0.1; done
mkfs.ext4 -q /dev/nvme0n1; mount /dev/nvme0n1 /mnt
dd if=/dev/urandom of=/mnt/data bs=1M count=20 conv=fsync status=none; sha256sum </mnt/data; umount /mnt
echo 1 >/sys/class/nvme/nvme0/delete_controller`)
	do(t, ctx, storage, "rm /sys/kernel/config/nvmet/ports/1/subsystems/*; echo 0 >/sys/kernel/config/nvmet/subsystems/nqn.2026-01.test:demo/namespaces/1/enable")
	read := do(t, ctx, storage, "mount /dev/vg0/demo /mnt; sha256sum </mnt/data; umount /mnt")
	if wrote != read {
		t.Errorf("worker wrote %s, the storage node's volume has %s", wrote, read)
	}
}

func TestGuest_Command(t *testing.T) {
	ctx, l := open(t)
	g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11", Env: map[string]string{"A": "1"}})
	var out bytes.Buffer
	err := g.Command(ctx, &out, agent.Command{Argv: []string{"bash", "-c", "echo $A$B; pwd"}, Dir: "/var", Env: []string{"B=2"}})
	if err != nil || out.String() != "12\n/var\n" {
		t.Errorf("Command() = %q, %v, want 12 and /var", out.String(), err)
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := g.Run(short, &out, "sleep", "1234"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run() beyond its deadline = %v, want DeadlineExceeded", err)
	}
	if left := do(t, ctx, g, "sleep 0.3; pgrep -x sleep || true"); left != "" {
		t.Errorf("the program outlived its caller: %s", left)
	}
}

// TestGuest_rebootsItself: a guest that reboots or panics is down at once, and boots again.
func TestGuest_rebootsItself(t *testing.T) {
	ctx, l := open(t)
	g := boot(t, ctx, l, lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11"})
	for name, test := range map[string]struct{ script, says string }{
		"reboot":   {script: "echo kept > /var/mark; sync; reboot -f"},
		"poweroff": {script: "poweroff -f"},
		"panic":    {script: "echo c > /proc/sysrq-trigger", says: "Kernel panic - not syncing: sysrq triggered crash"},
	} {
		out, err := g.Exec(ctx, test.script)
		if !errors.Is(err, lab.ErrDown) || !strings.Contains(err.Error(), test.says) {
			t.Fatalf("%s: Exec() = %q, %v, want ErrDown %s", name, out, err, test.says)
		}
		if err := g.Kill(); err != nil { // what is left of it
			t.Fatal(err)
		}
		if err := g.Start(ctx); err != nil {
			t.Fatalf("after %s: %v", name, err)
		}
	}
	if got := do(t, ctx, g, "cat /var/mark"); got != "kept" {
		t.Errorf("/var/mark = %q, want kept", got)
	}
}
