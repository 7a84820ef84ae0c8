package nvmet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

const (
	volume  = "vg0/pvc-1"
	device  = "/dev/vg0/pvc-1"
	alias   = "/dev/vg0/alias" // of device
	volume2 = "vg0/pvc-2"
	device2 = "/dev/vg0/pvc-2"
	host1   = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111"
	host2   = "nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222"
	nqn     = Prefix + "vg0.pvc-1"
	nqn2    = Prefix + "vg0.pvc-2"
	subDir  = "nvmet/subsystems/" + nqn
)

var portal = transport.Portal{Address: "127.0.0.1", Port: 4420}

// export is one of the first volume to the first host, changed in some way.
func export(change func(*transport.Export)) transport.Export {
	e := transport.Export{
		Kind: transport.NVMeTCP, Volume: volume, DevicePath: device,
		Portal: portal, ACL: true, Initiators: []string{host1},
	}
	if change != nil {
		change(&e)
	}
	return e
}

func toBoth(e *transport.Export)   { e.Initiators = []string{host1, host2} }
func toOther(e *transport.Export)  { e.Initiators = []string{host2} }
func open(e *transport.Export)     { e.ACL = false }
func disabled(e *transport.Export) { e.Disabled = true }
func second(e *transport.Export)   { e.Volume, e.DevicePath = volume2, device2 }

func inCapsule(bytes int32) func(*transport.Export) {
	return func(e *transport.Export) { e.InCapsuleDataSize = &bytes }
}

func free(string) (func() error, error) { return func() error { return nil }, nil }

// fixture answers an empty configfs and the target on it.
type fixture func(t *testing.T) (*configfstest.Kernel, *Target)

// inMemory has the kernel's rules and no kernel. The volumes' devices are there.
func inMemory(t *testing.T) (*configfstest.Kernel, *Target) {
	k := configfstest.New()
	return k, New(k.Dir(), Config{IdentityDir: t.TempDir(), Number: func(path string) (uint64, error) {
		if n, ok := map[string]uint64{device: 1, alias: 1, device2: 2}[path]; ok {
			return n, nil
		}
		return deviceNumber(path)
	}})
}

// onKernel is the guest's own, with spare disks under the volumes' paths.
func onKernel(t *testing.T) (*configfstest.Kernel, *Target) {
	t.Helper()
	hosttest.Need(t, "nvmet", "nvmet_tcp")
	must(t, configfs.Mount(""))
	for path, disk := range map[string]int{device: 0, alias: 0, device2: 1} {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.Symlink(hosttest.Disk(t, disk), path))
		t.Cleanup(func() { os.Remove(path) })
	}
	k := configfstest.Watch(configfs.Kernel(""))
	must(t, k.Clear())
	t.Cleanup(func() { must(t, k.Clear()) })
	return k, New(k.Dir(), Config{IdentityDir: t.TempDir()})
}

func none(*testing.T, *Target) {}

func exporting(changes ...func(*transport.Export)) func(*testing.T, *Target) {
	return func(t *testing.T, tgt *Target) {
		t.Helper()
		if _, err := tgt.Export(t.Context(), changed(changes...), free); err != nil {
			t.Fatal(err)
		}
	}
}

func changed(changes ...func(*transport.Export)) transport.Export {
	e := export(nil)
	for _, change := range changes {
		change(&e)
	}
	return e
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// content is what a configfs holds, for comparison: names below dir, and values of
// attributes, links and "dir".
func content(t *testing.T, k configfs.FS, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	names, err := k.ReadDir(dir)
	must(t, err)
	for _, name := range names {
		full := dir + "/" + name
		isDir, err := k.IsDir(full)
		must(t, err)
		if isDir {
			all[full] = "dir"
			for name, value := range content(t, k, full) {
				all[name] = value
			}
			continue
		}
		value, err := k.ReadFile(full)
		switch {
		case errors.Is(err, fs.ErrPermission): // only takes writes, holds nothing
			continue
		case errors.Is(err, syscall.EISDIR):
			all[full] = "link"
			continue
		}
		must(t, err)
		all[full] = string(value)
	}
	return all
}

// reachable tells whether a host that is in no list reaches the volume, and whether any
// host can.
func reachable(t *testing.T, k configfs.FS) (byAnyone, atAll bool) {
	t.Helper()
	all := content(t, k, "nvmet")
	for name := range all {
		linked, _ := filepath.Match("nvmet/ports/*/subsystems/"+nqn, name)
		atAll = atAll || linked
	}
	return atAll && all[subDir+"/attr_allow_any_host"] == "1\n", atAll
}
