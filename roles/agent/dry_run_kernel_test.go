package agent

import (
	"bytes"
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
	all["LVM metadata"] = m.metadata()
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

// metadata is the start of the group's disk, where LVM keeps it.
func (m *machine) metadata() string {
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
	m.mustStart()
	m.must(m.restore())
	m.must(m.create(1))
	m.must(m.export(1, host1))
	m.must(m.stop())
	before := m.snapshot()
	r := m.dryRunReadOnly()
	m.wantSame("a dry run without a place to write", before)
	if len(r.Missing) != 1 || r.Missing[0].Subsystem != "state" || !strings.Contains(r.Missing[0].Problem, "read-only file system") {
		t.Errorf("Missing = %+v, want the state directory alone", r.Missing)
	}
	var out bytes.Buffer
	m.must(dryCommand(m.dir, &out))
	m.wantSame("a dry run", before)
	m.must(json.Unmarshal(out.Bytes(), &r))
	if len(r.Pools) != 1 || r.Pools[0].Volumes != 1 || r.Pools[0].AvailableBytes == 0 || len(r.Exports) != 1 || r.Exports[0] != testNQN || !r.Ready {
		t.Errorf("found %+v, %q, ready %v, want the group with one volume, and its export", r.Pools, r.Exports, r.Ready)
	}
	wantSteps(t, r.Steps, []string{"agent start listen", "volume in " + testGroup + " run lvcreate", "volume in " + testGroup + " link nvmet/ports"})
	m.must(m.run("vgs", testGroup)) // the snapshot sees what a tool that only reads leaves behind
	if diff := cmp.Diff(before, m.snapshot()); diff == "" {
		t.Error("vgs left nothing behind: the comparison may be blind")
	}
}

func (m *machine) wantSame(after string, before map[string]string) {
	m.t.Helper()
	if diff := cmp.Diff(before, m.snapshot()); diff != "" {
		m.t.Errorf("%s changed (-before +after):\n%s", after, diff)
	}
}
