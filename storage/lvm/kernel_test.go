package lvm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/blockdev"
	"github.com/pillar-csi/pillar/storage/host"
	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/storage/lvm"
	"github.com/pillar-csi/pillar/storage/storagetest"
)

const (
	owner  = storage.Owner("0b1e0c62-3a5e-4f62-9d0a-3f1f0f8c1a01")
	vg     = "pillar-test0"
	extent = 4 << 20
)

// tool runs an LVM tool as a machine's owner would, with the machine's own settings.
func tool(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := distribution(t.Context(), argv...)
	if err != nil {
		t.Fatalf("%s: %v", strings.Join(argv, " "), err)
	}
	return string(out)
}

// distribution runs a tool as an administrator beside the agent should (docs/operations.md):
// it does not wait for udev, which some systemd-udevd 252 never answers again after a
// thousand quick events.
func distribution(ctx context.Context, argv ...string) ([]byte, error) {
	return host.Exec{Env: []string{"DM_DISABLE_UDEV=1"}}.Run(ctx, argv[0], argv[1:]...)
}

// emptyGroup makes a volume group on a spare disk for the time of the test.
func emptyGroup(t testing.TB) *lvm.Group {
	t.Helper()
	hosttest.Need(t, "dm_mod", "bin:lvm")
	removeGroup() // of a test that was killed
	disk := hosttest.Disk(t, 0)
	tool(t, "vgcreate", "--yes", "--physicalextentsize", "4m", vg, disk)
	t.Cleanup(removeGroup)
	return group()
}

// removeGroup also takes away the nodes: a tool that leaves them to udev does not remove
// what ours, which do not, have made, and vgcreate refuses a name that has a directory.
func removeGroup() {
	_, _ = distribution(unended(), "vgremove", "--yes", "--force", vg)
	_ = os.RemoveAll("/dev/" + vg)
}

func group() *lvm.Group {
	return lvm.New(host.Exec{}, "", lvm.Config{VolumeGroup: vg})
}

// ownerTag is what a finished LV carries.
const ownerTag = "pillar-volume=" + string(owner)

func spec(name string, bytes int64) storage.Spec {
	return storage.Spec{
		ID: storage.VolumeID{Pool: vg, Name: name}, Owner: owner, Bytes: bytes, Backend: storage.LVMLV,
		LVM: &storage.LVMParams{VolumeGroup: vg, Mode: lvm.Linear},
	}
}

// fixture is what the contract's tests need of a group. Who asks for it removes what they leave.
func fixture(t testing.TB, backend storage.Backend) storagetest.Fixture {
	hosttest.NoLeaks(t)
	return storagetest.Fixture{
		Backend: backend,
		Pool:    vg,
		Unit:    extent,
		Names:   []string{"a.b+c_d-e", "lvol0", strings.Repeat("n", 100)},
		Spec:    spec,
		Open:    func(path string) (storagetest.Device, error) { return blockdev.Open(path, os.O_RDWR) },
		Hold: func(t testing.TB, path string) func() {
			release, err := blockdev.Hold(path)
			if err != nil {
				t.Fatal(err)
			}
			return func() { _ = release() }
		},
		Stranger: func(t testing.TB, name string, bytes int64) {
			tool(t, "lvcreate", "--yes", "--size", fmt.Sprintf("%db", bytes), "--name", name, vg)
		},
		Reboot: func(t testing.TB) { tool(t, "vgchange", "--activate", "n", vg) },
	}
}

func TestGroup_contract_kernel(t *testing.T) {
	g := emptyGroup(t)
	storagetest.Run(t, func(t testing.TB) storagetest.Fixture {
		f := fixture(t, g)
		t.Cleanup(func() { _, _ = distribution(unended(), "lvremove", "--yes", vg) })
		return f
	})
}

func tags(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(tool(t, "lvs", "--noheadings", "--options", "lv_tags", vg+"/"+name))
}

// N-9: every kind of signature a deleted claim can leave at both ends, in a group that
// hands out the same extents again.
func TestGroup_signatures_kernel(t *testing.T) {
	g := emptyGroup(t)
	hosttest.Need(t, "bin:blkid", "bin:mkfs.ext4")
	for _, mkfs := range [][]string{{"mkfs.ext4", "-q", "-F"}, {"pvcreate", "--yes", "--config", "devices{scan_lvs=1}"}, {"mkswap"}} {
		t.Run(mkfs[0], func(t *testing.T) {
			v, err := g.Create(t.Context(), spec("pvc-1", 64<<20))
			if err != nil {
				t.Fatal(err)
			}
			tool(t, append(mkfs, v.DevicePath)...)
			if err := g.Delete(t.Context(), "pvc-1", owner); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Create(t.Context(), spec("pvc-1", 64<<20)); err != nil {
				t.Fatal(err)
			}
			var exit *host.ExitError
			if out, err := (host.Exec{}).Run(t.Context(), "blkid", "--probe", v.DevicePath); !errors.As(err, &exit) || exit.Code != 2 {
				t.Errorf("blkid of the new volume = %s, %v, want nothing found", out, err)
			}
			if got := tags(t, "pvc-1"); got != ownerTag {
				t.Errorf("tags = %q, want %s alone", got, ownerTag)
			}
			if err := g.Delete(t.Context(), "pvc-1", owner); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// H-15: a volume group that a pod made inside its volume is neither seen nor in the way.
func TestGroup_groupInside_kernel(t *testing.T) {
	g := emptyGroup(t)
	v, err := g.Create(t.Context(), spec("pvc-1", 64<<20))
	if err != nil {
		t.Fatal(err)
	}
	inside := []string{"--config", "devices{scan_lvs=1} activation{udev_sync=0 udev_rules=0}"}
	tool(t, append([]string{"vgcreate", "--yes", "pillar-inside", v.DevicePath}, inside...)...)
	dir := t.TempDir() // of a machine that does look inside
	if err := os.WriteFile(filepath.Join(dir, "lvm.conf"), []byte("devices { scan_lvs=1 }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g2 := lvm.New(host.Exec{Env: []string{"LVM_SYSTEM_DIR=" + dir}}, "", lvm.Config{VolumeGroup: "pillar-inside"})
	if _, err := g2.Pool(t.Context()); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Pool of the group inside = %v, want ErrNotFound", err)
	}
	if err := g.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete = %v", err)
	}
}

// A missing group is ErrNotFound of the pool, and never the absence of a volume (B-204).
func TestGroup_missing_kernel(t *testing.T) {
	hosttest.Need(t, "dm_mod", "bin:lvm")
	g := lvm.New(host.Exec{}, "", lvm.Config{VolumeGroup: "no-such-group"})
	if _, err := g.Pool(t.Context()); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Pool = %v, want ErrNotFound", err)
	}
	_, inspect := g.Inspect(t.Context(), "pvc-1")
	_, list := g.List(t.Context())
	s := spec("pvc-1", extent)
	s.ID.Pool, s.LVM.VolumeGroup = "no-such-group", "no-such-group"
	_, create := g.Create(t.Context(), s)
	for call, err := range map[string]error{"Inspect": inspect, "List": list, "Create": create, "Delete": g.Delete(t.Context(), "pvc-1", owner)} {
		if !errors.Is(err, storage.ErrPrecondition) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("%s = %v, want ErrPrecondition", call, err)
		}
	}
}

// H-38: with a udev daemon that answers nobody, nodes come and go all the same, at once.
func TestGroup_withoutUdev_kernel(t *testing.T) {
	g := emptyGroup(t)
	hosttest.Need(t, "bin:udevadm")
	tool(t, "udevadm", "settle")
	tool(t, "udevadm", "control", "--stop-exec-queue")
	t.Cleanup(func() { _, _ = host.Exec{}.Run(unended(), "udevadm", "control", "--start-exec-queue") })
	for range 2 { // the second on the extents and the minor of the first
		v, err := g.Create(t.Context(), spec("pvc-1", extent))
		if err != nil {
			t.Fatal(err)
		}
		if size, err := blockdev.Size(v.DevicePath); size != extent || err != nil {
			t.Errorf("Size(%s) = %d, %v", v.DevicePath, size, err)
		}
		if err := g.Delete(t.Context(), "pvc-1", owner); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(v.DevicePath); !os.IsNotExist(err) {
			t.Errorf("the node of a deleted LV = %v, want it gone", err)
		}
	}
}

// H-40: a refused delete names the device on top.
func TestGroup_holder_kernel(t *testing.T) {
	g := emptyGroup(t)
	v, err := g.Create(t.Context(), spec("pvc-1", extent))
	if err != nil {
		t.Fatal(err)
	}
	tool(t, "dmsetup", "create", "--noudevsync", "pillar-claim", "--table", fmt.Sprintf("0 8 linear %s 0", v.DevicePath))
	err = g.Delete(t.Context(), "pvc-1", owner)
	if !errors.Is(err, storage.ErrBusy) || !strings.Contains(err.Error(), "pillar-claim") {
		t.Errorf("Delete = %v, want ErrBusy naming pillar-claim", err)
	}
	tool(t, "dmsetup", "remove", "--noudevsync", "pillar-claim")
	if err := g.Delete(t.Context(), "pvc-1", owner); err != nil {
		t.Errorf("Delete = %v", err)
	}
}

// B-225, H-50: nothing but a plain linear LV is deleted, activated or taken for a volume,
// even with its owner's mark.
func TestGroup_othersLVs_kernel(t *testing.T) {
	g := emptyGroup(t)
	tool(t, "lvcreate", "--yes", "--addtag", ownerTag, "--size", "8m", "--name", "origin", vg)
	tool(t, "lvcreate", "--yes", "--addtag", ownerTag, "--size", "4m", "--snapshot", "--name", "copy", vg+"/origin")
	tool(t, "lvcreate", "--yes", "--addtag", ownerTag, "--type", "mirror", "--alloc", "anywhere", "--mirrors", "1", "--mirrorlog", "core", "--size", "8m", "--name", "mirrored", vg)
	for _, name := range []string{"origin", "copy", "mirrored"} {
		if err := g.Delete(t.Context(), name, owner); !errors.Is(err, storage.ErrPrecondition) {
			t.Errorf("Delete(%s) = %v, want ErrPrecondition", name, err)
		}
		if _, err := g.Inspect(t.Context(), name); err != nil {
			t.Errorf("Inspect(%s) = %v", name, err)
		}
	}
	for _, name := range []string{"copy", "mirrored"} {
		if _, err := g.Activate(t.Context(), name, owner); !errors.Is(err, storage.ErrPrecondition) {
			t.Errorf("Activate(%s) = %v, want ErrPrecondition", name, err)
		}
		if _, err := g.Create(t.Context(), spec(name, 8<<20)); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("Create(%s) = %v, want ErrConflict", name, err)
		}
	}
	list, err := g.List(t.Context())
	if err != nil || len(list) != 1 || list[0].ID.Name != "origin" {
		t.Errorf("List = %v, %v, want origin alone", list, err)
	}
}

// B-224, P-41, N-14: a node that leads to another device is an error; a node that is
// missing is made.
func TestGroup_node_kernel(t *testing.T) {
	g := emptyGroup(t)
	v, err := g.Create(t.Context(), spec("pvc-1", extent))
	if err != nil {
		t.Fatal(err)
	}
	other, err := g.Create(t.Context(), spec("pvc-2", extent))
	if err != nil {
		t.Fatal(err)
	}
	target, err := filepath.EvalSymlinks(other.DevicePath)
	if err := errors.Join(err, os.Remove(v.DevicePath), os.Symlink(target, v.DevicePath)); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Activate(t.Context(), "pvc-1", owner); err == nil || !strings.Contains(err.Error(), "is not this LV's device") {
		t.Errorf("Activate by another LV's node = %v, want an error", err)
	}
	if err := os.Remove(v.DevicePath); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mknod(v.DevicePath, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 99))); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Activate(t.Context(), "pvc-1", owner); err == nil || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("Activate by a stale node = %v, want an error", err)
	}
	if err := os.Remove(v.DevicePath); err != nil {
		t.Fatal(err)
	}
	got, err := g.Activate(t.Context(), "pvc-1", owner)
	got.Device = storage.DeviceID{} // the kernel says
	if err != nil || got != v {
		t.Errorf("Activate without a node = %+v, %v, want %+v", got, err, v)
	}
	if _, err := blockdev.Size(v.DevicePath); err != nil {
		t.Errorf("the node made anew: %v", err)
	}
}
