package artifacts

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// zfsSource is the package of the modules' source. The release's own, 2.1, cannot be built for
// user-mode Linux: its configure has no KERNEL_ARCH.
const zfsSource = "zfs-dkms/" + suite + "-backports"

// zfsPackages are ZFS's programs, in the version of zfsSource. What else they need is in the
// guests' root already; the python scripts among them (arcstat ...) do without.
var zfsPackages = []string{"zfsutils-linux", "libzfs6linux", "libnvpair3linux", "libuutil3linux", "libzpool6linux"}

// ZFS is what a user-mode Linux guest with ZFS boots instead of the plain kernel's modules and
// the plain root. There is none for QEMU guests: their kernel's headers and another build of
// several minutes would be needed, to test the same code.
type ZFS struct {
	Modules string // like Kernel.Modules, with spl and zfs
	Root    string // like Root, with zfs(8) and zpool(8)
}

// ZFS returns the trees with ZFS. They are an artifact of their own, so that a machine where
// nobody uses ZFS neither builds nor downloads any of it; files they share with the plain ones
// are hard links. Offline, an error is ErrMissing unless `lab build zfs` was run.
func (c *Cache) ZFS(ctx context.Context) (ZFS, error) {
	dir, err := c.zfs(ctx)
	if errors.Is(err, ErrMissing) {
		return ZFS{}, fmt.Errorf("ZFS: %w, run `lab build zfs` first", ErrMissing)
	}
	if err != nil {
		return ZFS{}, err
	}
	return ZFS{Modules: filepath.Join(dir, "lib/modules"), Root: filepath.Join(dir, "root")}, nil
}

func (c *Cache) zfs(ctx context.Context) (string, error) {
	uml, err := c.deb(ctx, "user-mode-linux")
	if err != nil {
		return "", err
	}
	kernel, err := c.UML(ctx)
	if err != nil {
		return "", err
	}
	root, err := c.Root(ctx)
	if err != nil {
		return "", err
	}
	dkms, err := c.deb(ctx, zfsSource)
	if err != nil {
		return "", err
	}
	z := &zfsBuild{uml: uml, kernel: kernel, root: root, dkms: dkms}
	return c.get(ctx, artifact{
		name: "zfs",
		why:  "ZFS for guests that ask for it; its modules are compiled from source, which takes minutes",
		key: append([]string{filepath.Base(filepath.Dir(kernel.Image)), filepath.Base(root), filepath.Base(dkms), "1"},
			zfsPackages...),
		make: z.make,
	})
}

// zfsBuild are the inputs of the artifact.
type zfsBuild struct {
	uml, dkms string // package files
	kernel    Kernel
	root      string
}

func (z *zfsBuild) make(ctx context.Context, b *builder) error {
	_, src, err := umlKernelSource(ctx, b, z.uml)
	if err != nil {
		return err
	}
	if err := writeSymvers(z.kernel.Image, filepath.Join(src, "Module.symvers")); err != nil {
		return fmt.Errorf("list the symbols of the kernel: %w", err)
	}
	modules, err := z.compile(ctx, b, src)
	if err != nil {
		return err
	}
	b.step("module tree")
	if err := z.moduleTree(ctx, b, modules); err != nil {
		return err
	}
	b.step("guest root with zfs and zpool")
	return z.rootTree(ctx, b)
}

// compile returns the module files.
func (z *zfsBuild) compile(ctx context.Context, b *builder, src string) ([]string, error) {
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
	err = b.run(ctx, dir, nil, "./configure", "--disable-dependency-tracking", "--with-config=kernel",
		"--with-linux="+src, "--with-linux-obj="+src, "KERNEL_ARCH=um")
	if err != nil {
		return nil, err
	}
	b.step("compile %s", filepath.Base(dir))
	if err := b.run(ctx, dir, nil, "make", "-C", "module", "-j2", "KCFLAGS=-g0", "KBUILD_MODPOST_WARN=1"); err != nil {
		return nil, err
	}
	return []string{filepath.Join(dir, "module/spl.ko"), filepath.Join(dir, "module/zfs.ko")}, nil
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

// rootTree is the guests' root with ZFS's programs unpacked over it.
func (z *zfsBuild) rootTree(ctx context.Context, b *builder) error {
	root := filepath.Join(b.out, "root")
	if err := b.run(ctx, b.out, nil, "cp", "-al", z.root, root); err != nil {
		return err
	}
	// The root's /lib and /sbin are links into /usr; the packages still have them as directories.
	unpack := []string{"tar", "-x", "--keep-directory-symlink"}
	for _, path := range rootTrash {
		unpack = append(unpack, "--exclude=./"+path)
	}
	_, version, _ := strings.Cut(filepath.Base(z.dkms), "_")
	version, _, _ = strings.Cut(version, "_")
	for _, name := range zfsPackages {
		deb, err := b.cache.deb(ctx, name+"="+strings.ReplaceAll(version, "%3a", ":"))
		if err != nil {
			return err
		}
		if err := b.pipe(ctx, root, []string{"dpkg-deb", "--fsys-tarfile", deb}, unpack); err != nil {
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
