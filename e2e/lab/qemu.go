package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// qemu runs guests with Debian's stock kernel in QEMU, without KVM: slower, but two CPUs and the
// very kernel users have.
type qemu struct {
	cache      *artifacts.Cache
	kernel     artifacts.Kernel
	root, init string
	early      []string // module files, in load order
}

// earlyModules are what init needs before it has the guest's root, where modprobe is. ext4
// asks for a crc32c algorithm when it is mounted.
var earlyModules = []string{"virtio_blk", "virtio_net", "9pnet_virtio", "9p", "overlay", "crc32c_generic", "ext4"}

func newQEMU(ctx context.Context, cache *artifacts.Cache) (*qemu, error) {
	kernel, err := cache.QEMU(ctx)
	if err != nil {
		return nil, err
	}
	root, err := cache.Root(ctx)
	if err != nil {
		return nil, err
	}
	init, err := cache.GuestInit(ctx, ".")
	if err != nil {
		return nil, err
	}
	dep, err := os.ReadFile(filepath.Join(kernel.Modules, kernel.Release, "modules.dep"))
	if err != nil {
		return nil, err
	}
	return &qemu{cache: cache, kernel: kernel, root: root, init: init, early: loadOrder(string(dep), earlyModules)}, nil
}

func (q *qemu) zfs(ctx context.Context) (artifacts.ZFS, error) { return q.cache.QEMUZFS(ctx) }

func (q *qemu) memoryMB() int       { return 512 }
func (q *qemu) device(i int) string { return "/dev/vd" + string(rune('a'+i)) }
func (q *qemu) troubles() []string  { return []string{"Kernel panic", "Failed to get"} }

func (q *qemu) command(ctx context.Context, g *Guest) (argv, env []string, err error) {
	root, modules, err := trees(ctx, q, g.Spec, q.root, q.kernel.Modules)
	if err != nil {
		return nil, nil, err
	}
	if err := q.copyTemplate(g); err != nil {
		return nil, nil, err
	}
	config := g.bootConfig()
	config.Interface = "eth0"
	config.Var = q.device(0)
	config.Root = agent.Share{Type: "9p", Source: "root", ReadOnly: true}
	config.Modules = agent.Share{Type: "9p", Source: "modules", ReadOnly: true}
	argv = []string{
		"qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-M", "q35", "-smp", "2",
		"-m", fmt.Sprint(g.Spec.MemoryMB), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "stdio", "-kernel", q.kernel.Image, "-initrd", filepath.Join(g.dir, "initrd"),
		// cryptomgr.notests and mitigations=off: half of the boot without them.
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off cryptomgr.notests net.ifnames=0 sysrq_always_enabled",
		"-qmp", "unix:" + monitor(g) + ",server=on,wait=off",
		"-netdev", "tap,id=n0,ifname=" + g.tap + ",script=no,downscript=no",
		"-device", "virtio-net-pci,netdev=n0,romfile=,mac=" + macAddress(g.Spec.Address),
	}
	argv = append(argv, nineP("root", root, true)...)
	argv = append(argv, nineP("modules", modules, true)...)
	for i := range config.Shares {
		s := &config.Shares[i]
		tag := fmt.Sprintf("share%d", i)
		argv = append(argv, nineP(tag, s.Source, s.ReadOnly)...)
		s.Type, s.Source = "9p", tag
	}
	for i, image := range g.images {
		argv = append(argv,
			"-drive", fmt.Sprintf("file=%s,if=none,id=d%d,format=raw,cache=unsafe,discard=unmap,detect-zeroes=unmap,file.locking=off", image, i),
			"-device", fmt.Sprintf("virtio-blk-pci,drive=d%d,serial=lab%d", i, i))
	}
	return argv, nil, q.writeInitrd(filepath.Join(g.dir, "initrd"), config)
}

// nineP shares a host directory under a tag.
func nineP(tag, dir string, readOnly bool) []string {
	access := ""
	if readOnly {
		access = ",readonly=on"
	}
	return []string{
		"-fsdev", "local,id=" + tag + ",path=" + dir + ",security_model=none,multidevs=remap" + access,
		"-device", "virtio-9p-pci,fsdev=" + tag + ",mount_tag=" + tag,
	}
}

// copyTemplate makes /var of a guest from its template at the first boot: a sparse copy.
func (q *qemu) copyTemplate(g *Guest) error {
	if g.Spec.VarBacking == "" {
		return nil
	}
	if _, err := os.Stat(g.images[0]); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := exec.Command("cp", "--sparse=always", "--reflink=auto", g.Spec.VarBacking, g.images[0]).CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy template: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (q *qemu) writeInitrd(file string, config agent.Boot) error {
	var tree initrd
	for _, dir := range bootDirs {
		tree.dir(dir)
	}
	if err := tree.addFile("init", 0o755, q.init); err != nil {
		return err
	}
	for _, name := range q.early {
		if err := tree.addFile("modules/early/"+filepath.Base(name), 0o644, filepath.Join(q.kernel.Modules, q.kernel.Release, name)); err != nil {
			return err
		}
		config.Early = append(config.Early, "early/"+filepath.Base(name))
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	tree.add("config.json", 0o644, data)
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = tree.WriteTo(f)
	return errors.Join(err, f.Close())
}
