package agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/roles/agent/dryrun"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/host"
)

// snapshot answers what a dry run could change: targets, devices, modules, mounts, LVM's
// locks, caches and metadata, the agent's files.
func (m *machine) snapshot() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	for _, dir := range []string{"/sys/kernel/config", "/dev", "/run/lvm", "/run/lock/lvm", "/etc/lvm", m.dir} {
		m.must(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil // a directory that is not there, or gone again
			}
			all[path] = m.describe(path)
			if strings.HasPrefix(path, "/dev/") && d.IsDir() && !strings.HasPrefix(path, "/dev/pillar") && !strings.HasPrefix(path, "/dev/mapper") {
				return filepath.SkipDir
			}
			return nil
		}))
	}
	modules, err := os.ReadDir("/sys/module")
	m.must(err)
	for _, mod := range modules {
		all["/sys/module/"+mod.Name()] = ""
	}
	mounts, err := os.ReadFile("/proc/mounts")
	m.must(err)
	all["/proc/mounts"] = string(mounts)
	all["pool"] = m.metadata()
	return all
}

// describe answers a file's kind and content, as far as it can be read.
func (m *machine) describe(path string) string {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return err.Error()
	}
	text := fmt.Sprintf("%o %d", st.Mode, st.Rdev)
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		target, _ := os.Readlink(path)
		return text + " " + target
	case st.Mode&unix.S_IFMT == unix.S_IFREG:
		content, _ := os.ReadFile(path) // some attributes only take writes
		return text + " " + string(content)
	}
	return text
}

// metadata is what the pool knows of its volumes: the start of the group's disk, where LVM
// keeps it, or the datasets, as ZFS writes to its disks all the time.
func (m *machine) metadata() string {
	if strings.HasPrefix(m.backend, "{zfs") {
		out, err := host.Exec{}.Run(context.Background(), "zfs", "list", "-H", "-p", "-r", "-t", "all", "-o", "name,type,guid,volsize,refreservation", testGroup)
		m.must(err)
		return string(out)
	}
	f, err := os.Open(strings.Split(os.Getenv("PILLAR_LAB_DISKS"), ",")[0])
	m.must(err)
	defer f.Close()
	sum := sha256.New()
	_, err = io.CopyN(sum, f, 1<<20)
	m.must(err)
	return fmt.Sprintf("%x", sum.Sum(nil))
}

const dryChild = "PILLAR_DRY_RUN_CHILD"

// dryRunReadOnly runs `pillar agent --dry-run` in a process that cannot write any file: every
// mount is read-only there, but for a place for temporary files.
func (m *machine) dryRunReadOnly() (r dryrun.Report) {
	m.t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^"+m.t.Name()+"$")
	cmd.Env = append(os.Environ(), dryChild+"="+m.dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if err != nil {
		m.t.Fatalf("dry run: %v\n%s", err, out)
	}
	at := bytes.IndexByte(out, '{')
	if at < 0 {
		m.t.Fatalf("no report in\n%s", out)
	}
	m.must(json.NewDecoder(bytes.NewReader(out[at:])).Decode(&r))
	return r
}

// readOnlyChild is that process.
func readOnlyChild(t *testing.T, dir string) {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &attr); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", "/mnt", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", "/mnt")
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err == nil {
		t.Fatal("this process can write")
	}
	_ = dryCommand(dir, os.Stdout) // the report says what is missing
}

func dryCommand(dir string, out io.Writer) error {
	cmd := Command()
	cmd.SetArgs([]string{"--dry-run", "--output", "json", "--config", filepath.Join(dir, "agent.yaml"), "--state-dir", filepath.Join(dir, "state")})
	cmd.SetOut(out)
	return cmd.Execute()
}

// A dry run on a real storage node, in use and with an export, changes nothing, whether it
// can or not. All it misses where nothing can be written is a state directory that can.
func TestDryRun_changesNothing_kernel(t *testing.T) {
	if dir := os.Getenv(dryChild); dir != "" {
		readOnlyChild(t, dir)
		return
	}
	m := newMachine(t)
	before := m.inUse(storage.LVMLV, m.spec(5<<20))
	m.changesNothing(before, "run lvcreate")
	m.must(m.run("vgs", testGroup)) // the snapshot sees what a tool that only reads leaves behind
	if diff := cmp.Diff(before, m.snapshot()); diff == "" {
		t.Error("vgs left nothing behind: the comparison may be blind")
	}
}

func TestDryRun_changesNothing_zvol_kernel(t *testing.T) {
	if dir := os.Getenv(dryChild); dir != "" {
		readOnlyChild(t, dir)
		return
	}
	m := newZvolMachine(t)
	spec := storage.Spec{ID: testID, Bytes: 8 << 20, Backend: storage.ZFSZvol, ZFS: &storage.ZFSParams{Pool: testGroup, ParentDataset: "k8s"}}
	m.changesNothing(m.inUse(storage.ZFSZvol, spec), "run zfs create")
}

// inUse is a snapshot of the machine with an export and without an agent.
func (m *machine) inUse(backend storage.BackendType, spec storage.Spec) map[string]string {
	m.t.Helper()
	m.mustStart()
	m.must(m.restore())
	_, err := m.CreateVolume(context.Background(), token(1), spec)
	m.must(err)
	_, err = m.ExportVolume(context.Background(), token(1), backend, testExport(host1))
	m.must(err)
	m.must(m.stop())
	return m.snapshot()
}

func (m *machine) changesNothing(before map[string]string, create string) {
	m.t.Helper()
	r := m.dryRunReadOnly()
	m.wantSame("a dry run without a place to write", before)
	if len(r.Missing) != 1 || r.Missing[0].Subsystem != "state" || !strings.Contains(r.Missing[0].Problem, "read-only file system") {
		m.t.Errorf("Missing = %+v, want the state directory alone", r.Missing)
	}
	var out bytes.Buffer
	m.must(dryCommand(m.dir, &out))
	m.wantSame("a dry run", before)
	m.must(json.Unmarshal(out.Bytes(), &r))
	if len(r.Pools) != 1 || r.Pools[0].Volumes != 1 || r.Pools[0].AvailableBytes == 0 || len(r.Exports) != 1 || r.Exports[0] != testNQN || !r.Ready {
		m.t.Errorf("found %+v, %q, ready %v, want the pool with one volume, and its export", r.Pools, r.Exports, r.Ready)
	}
	wantSteps(m.t, r.Steps, []string{"agent start listen", "volume in " + testGroup + " " + create, "volume in " + testGroup + " link nvmet/ports"})
}

func (m *machine) wantSame(after string, before map[string]string) {
	m.t.Helper()
	if diff := cmp.Diff(before, m.snapshot()); diff != "" {
		m.t.Errorf("%s changed (-before +after):\n%s", after, diff)
	}
}
