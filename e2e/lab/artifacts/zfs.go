package artifacts

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ZFSSuite is where ZFS comes from. The release's own, 2.1, cannot be built for user-mode
// Linux: its configure has no KERNEL_ARCH.
const ZFSSuite = suite + "-backports"

// zfsPackages are ZFS's programs. What else they need is in the guests' root already; the
// python scripts among them (arcstat ...) do without.
var zfsPackages = []string{"zfsutils-linux", "libzfs6linux", "libnvpair3linux", "libuutil3linux", "libzpool6linux"}

// ZFS is what a guest with ZFS boots instead of the plain kernel's modules and the plain root.
type ZFS struct {
	Modules string // like Kernel.Modules, with spl and zfs
	Root    string // as of ZFSRoot
}

// ZFSRoot returns Root with zfs(8) and zpool(8). Files it shares with Root are hard links.
func (c *Cache) ZFSRoot(ctx context.Context) (string, error) {
	root, err := c.Root(ctx)
	if err != nil {
		return "", err
	}
	version, err := c.zfsVersion(ctx)
	if err != nil {
		return "", err
	}
	return c.get(ctx, artifact{
		name: "zfs-root",
		why:  "the files of guests with ZFS and of pillar's image, from Debian packages",
		key:  append([]string{filepath.Base(root), version, "1"}, zfsPackages...),
		make: func(ctx context.Context, b *builder) error { return zfsRootTree(ctx, b, root, version) },
	})
}

// zfsVersion is the one version of everything of ZFS.
func (c *Cache) zfsVersion(ctx context.Context) (string, error) {
	deb, err := c.deb(ctx, zfsPackages[0]+"/"+ZFSSuite)
	if err != nil {
		return "", err
	}
	_, version, _ := strings.Cut(filepath.Base(deb), "_")
	version, _, _ = strings.Cut(version, "_")
	return strings.ReplaceAll(version, "%3a", ":"), nil
}

// UMLZFS returns the trees with ZFS for user-mode Linux. They are an artifact of their own, so
// that a machine where nobody uses ZFS neither builds nor downloads any of it; files they share
// with the plain ones are hard links. Offline, an error is ErrMissing unless `lab build zfs`
// was run.
func (c *Cache) UMLZFS(ctx context.Context) (ZFS, error) {
	uml, err := c.deb(ctx, "user-mode-linux")
	if err != nil {
		return ZFS{}, zfsMissing(err)
	}
	kernel, err := c.UML(ctx)
	if err != nil {
		return ZFS{}, err
	}
	return c.zfs(ctx, "zfs", kernel, func(ctx context.Context, b *builder) ([]string, error) {
		_, src, err := umlKernelSource(ctx, b, uml)
		if err != nil {
			return nil, err
		}
		if err := writeSymvers(kernel.Image, filepath.Join(src, "Module.symvers")); err != nil {
			return nil, fmt.Errorf("list the symbols of the kernel: %w", err)
		}
		return []string{"--with-linux=" + src, "--with-linux-obj=" + src, "KERNEL_ARCH=um"}, nil
	})
}

// QEMUZFS returns the trees with ZFS for the stock kernel, as UMLZFS does.
func (c *Cache) QEMUZFS(ctx context.Context) (ZFS, error) {
	image, err := c.qemuImage(ctx)
	if err != nil {
		return ZFS{}, zfsMissing(err)
	}
	kernel, err := c.QEMU(ctx)
	if err != nil {
		return ZFS{}, err
	}
	return c.zfs(ctx, "zfs-qemu", kernel, func(ctx context.Context, b *builder) ([]string, error) {
		return kernelHeaders(ctx, b, kernel.Release, image)
	})
}

// zfs makes the trees for a kernel. against unpacks what its modules are compiled against, and
// answers what ZFS's configure needs to know of it.
func (c *Cache) zfs(ctx context.Context, name string, kernel Kernel, against func(context.Context, *builder) ([]string, error)) (ZFS, error) {
	root, err := c.ZFSRoot(ctx)
	if err != nil {
		return ZFS{}, zfsMissing(err)
	}
	version, err := c.zfsVersion(ctx)
	if err != nil {
		return ZFS{}, zfsMissing(err)
	}
	dkms, err := c.deb(ctx, "zfs-dkms="+version)
	if err != nil {
		return ZFS{}, zfsMissing(err)
	}
	z := &zfsBuild{kernel: kernel, dkms: dkms, against: against}
	dir, err := c.get(ctx, artifact{
		name: name,
		why:  "the modules of ZFS for guests that ask for it; compiled from source, which takes minutes",
		key:  []string{filepath.Base(filepath.Dir(kernel.Image)), filepath.Base(dkms), "2"},
		make: z.make,
	})
	if err != nil {
		return ZFS{}, zfsMissing(err)
	}
	return ZFS{Modules: filepath.Join(dir, "lib/modules"), Root: root}, nil
}

func zfsMissing(err error) error {
	if errors.Is(err, ErrMissing) {
		return fmt.Errorf("ZFS: %w, run `lab build zfs` first", ErrMissing)
	}
	return err
}

// kernelHeaders unpacks the packages that modules of Debian's kernel are compiled against, in
// the version of its image (NAME=VERSION).
func kernelHeaders(ctx context.Context, b *builder, release, image string) ([]string, error) {
	_, version, _ := strings.Cut(image, "=")
	base := release[:strings.LastIndex(release, "-")] // without the flavour
	b.step("headers of kernel %s", release)
	dir := filepath.Join(b.work, "headers")
	for _, name := range []string{"linux-headers-" + release, "linux-headers-" + base + "-common", "linux-kbuild-" + base} {
		deb, err := b.cache.deb(ctx, name+"="+version)
		if err != nil {
			return nil, err
		}
		if err := b.run(ctx, b.work, nil, "dpkg-deb", "-x", deb, dir); err != nil {
			return nil, err
		}
	}
	src := filepath.Join(dir, "usr/src")
	obj, common := filepath.Join(src, "linux-headers-"+release), filepath.Join(src, "linux-headers-"+base+"-common")
	makefile := filepath.Join(obj, "Makefile")
	text, err := os.ReadFile(makefile)
	if err != nil {
		return nil, err
	}
	text = bytes.ReplaceAll(text, []byte("/usr/src/"), []byte(src+"/")) // where the packages are not
	if err := os.WriteFile(makefile, text, 0o644); err != nil {
		return nil, err
	}
	// With the kernel's type information there, modules get theirs: that needs pahole.
	if err := os.Remove(filepath.Join(obj, "vmlinux")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return []string{"--with-linux=" + common, "--with-linux-obj=" + obj}, nil
}

// zfsBuild are the inputs of the artifact.
type zfsBuild struct {
	dkms    string // package file
	kernel  Kernel
	against func(context.Context, *builder) ([]string, error)
}

func (z *zfsBuild) make(ctx context.Context, b *builder) error {
	linux, err := z.against(ctx, b)
	if err != nil {
		return err
	}
	modules, err := z.compile(ctx, b, linux)
	if err != nil {
		return err
	}
	b.step("module tree")
	return z.moduleTree(ctx, b, modules)
}

// compile returns the module files.
func (z *zfsBuild) compile(ctx context.Context, b *builder, linux []string) ([]string, error) {
	pkg := filepath.Join(b.work, "zfs")
	if err := b.run(ctx, b.work, nil, "dpkg-deb", "-x", z.dkms, pkg); err != nil {
		return nil, err
	}
	found, err := filepath.Glob(filepath.Join(pkg, "usr/src/zfs-*"))
	if err != nil || len(found) != 1 {
		return nil, fmt.Errorf("sources in %s: %q, want one", filepath.Base(z.dkms), found)
	}
	dir := found[0]
	b.step("configure %s for kernel %s", filepath.Base(dir), z.kernel.Release)
	configure := append([]string{"./configure", "--disable-dependency-tracking", "--with-config=kernel"}, linux...)
	if err := b.run(ctx, dir, nil, configure...); err != nil {
		return nil, err
	}
	b.step("compile %s", filepath.Base(dir))
	if err := b.run(ctx, dir, nil, "make", "-C", "module", "-j2", "KCFLAGS=-g0", "KBUILD_MODPOST_WARN=1"); err != nil {
		return nil, err
	}
	modules := []string{filepath.Join(dir, "module/spl.ko"), filepath.Join(dir, "module/zfs.ko")}
	return modules, b.run(ctx, dir, nil, append([]string{"strip", "--strip-debug"}, modules...)...)
}

// moduleTree is the kernel's module tree with the modules. Depmod replaces the lists it writes
// by rename, so those of the kernel's tree stay as they are.
func (z *zfsBuild) moduleTree(ctx context.Context, b *builder, modules []string) error {
	to := filepath.Join(b.out, "lib/modules")
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	tree := filepath.Join(to, z.kernel.Release)
	if err := b.run(ctx, b.out, nil, "cp", "-al", filepath.Join(z.kernel.Modules, z.kernel.Release), tree); err != nil {
		return err
	}
	extra := filepath.Join(tree, "extra")
	if err := os.MkdirAll(extra, 0o755); err != nil {
		return err
	}
	for _, ko := range modules {
		if err := os.Rename(ko, filepath.Join(extra, filepath.Base(ko))); err != nil {
			return err
		}
	}
	return b.run(ctx, b.out, nil, "depmod", "-b", b.out, z.kernel.Release)
}

// zfsRootTree is the guests' root with ZFS's programs unpacked over it.
func zfsRootTree(ctx context.Context, b *builder, root, version string) error {
	b.step("guest root with zfs and zpool")
	if err := b.run(ctx, b.out, nil, "cp", "-al", root+"/.", b.out); err != nil {
		return err
	}
	// The root's /lib and /sbin are links into /usr; the packages still have them as directories.
	unpack := []string{"tar", "-x", "--keep-directory-symlink"}
	for _, path := range rootTrash {
		unpack = append(unpack, "--exclude=./"+path)
	}
	for _, name := range zfsPackages {
		deb, err := b.cache.deb(ctx, name+"="+version)
		if err != nil {
			return err
		}
		if err := b.pipe(ctx, b.out, []string{"dpkg-deb", "--fsys-tarfile", deb}, unpack); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}
	return nil
}

// writeSymvers writes the list of a kernel's exported symbols that building the kernel would
// have left: ZFS's configure reads it. The names are in the section __ksymtab_strings; the
// checksums do not matter to a kernel without CONFIG_MODVERSIONS.
func writeSymvers(image, path string) error {
	f, err := elf.Open(image)
	if err != nil {
		return err
	}
	defer f.Close()
	section := f.Section("__ksymtab_strings")
	if section == nil {
		return fmt.Errorf("%s has no section __ksymtab_strings", filepath.Base(image))
	}
	names, err := section.Data()
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(symvers(string(names))), 0o644)
}

// symvers takes names that each end in a NUL and returns the format of Module.symvers that
// Documentation/kbuild/modules.rst, section 6.2, has.
func symvers(names string) string {
	var list strings.Builder
	for name := range strings.SplitSeq(names, "\x00") {
		if name != "" {
			fmt.Fprintf(&list, "0x00000000\t%s\tvmlinux\tEXPORT_SYMBOL\t\n", name)
		}
	}
	return list.String()
}
