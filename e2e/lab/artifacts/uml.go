package artifacts

import (
	"context"
	_ "embed" // xstateSource
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Kernel is a kernel and its modules.
type Kernel struct {
	Image   string // linux.uml, or vmlinux for QEMU
	Modules string // directory that holds <release>/; what a guest has as /usr/lib/modules
	Release string // uname -r
	Preload string // library that linux.uml is started with
}

// umlConfig is what is added to the package's own kernel configuration. Debian's user-mode
// Linux has everything a storage node needs but NVMe.
var umlConfig = []string{
	"-m", "NVME_TCP", "-m", "NVME_TARGET", "-m", "NVME_TARGET_TCP", "-m", "NVME_TARGET_LOOP",
	"-e", "NVME_MULTIPATH", "-e", "NVME_AUTH", "-e", "NVME_TARGET_AUTH",
}

// umlSource are the files of the kernel source that configuring it and building drivers/nvme
// need. The other architectures' Kconfig files are included by crypto/Kconfig, and
// security/selinux has headers that the prepare step compiles.
var umlSource = []string{
	"*/Kconfig*", "*/Makefile*", "*/Kbuild*",
	"SRC/include/*", "SRC/scripts/*", "SRC/arch/um/*", "SRC/arch/x86/*",
	"SRC/drivers/nvme/*", "SRC/kernel/*", "SRC/crypto/*", "SRC/security/*",
}

// UML returns the user-mode Linux kernel of the Debian package with NVMe modules built from the
// very source the package was built from: modules must carry the kernel's exact version.
func (c *Cache) UML(ctx context.Context) (Kernel, error) {
	deb, err := c.deb(ctx, "user-mode-linux")
	if err != nil {
		return Kernel{}, err
	}
	dir, err := c.get(ctx, artifact{
		name: "uml",
		why:  "the default guest kernel; its NVMe modules are compiled from the kernel source",
		key:  append(append([]string{filepath.Base(deb), "1"}, umlConfig...), umlSource...),
		make: func(ctx context.Context, b *builder) error { return makeUML(ctx, b, deb) },
	})
	if err != nil {
		return Kernel{}, err
	}
	k, err := kernelIn(dir, "linux.uml")
	if err != nil {
		return Kernel{}, err
	}
	k.Preload, err = c.umlPreload(ctx)
	return k, err
}

//go:embed umlxstate/xstate.c
var xstateSource string

// umlPreload returns the library that lets linux.uml run on processors with AMX, and end where it
// would start itself again; its source says how.
func (c *Cache) umlPreload(ctx context.Context) (string, error) {
	dir, err := c.get(ctx, artifact{
		name: "umlxstate",
		why:  "lets user-mode Linux save the registers of processors with AMX",
		key:  []string{xstateSource},
		make: func(ctx context.Context, b *builder) error {
			source := filepath.Join(b.work, "xstate.c")
			if err := os.WriteFile(source, []byte(xstateSource), 0o644); err != nil {
				return err
			}
			return b.run(ctx, b.work, nil, "gcc", "-O2", "-shared", "-fPIC", "-o", filepath.Join(b.out, "xstate.so"), source)
		},
	})
	return filepath.Join(dir, "xstate.so"), err
}

func kernelIn(dir, image string) (Kernel, error) {
	modules := filepath.Join(dir, "lib", "modules")
	entries, err := os.ReadDir(modules)
	if err != nil {
		return Kernel{}, err
	}
	if len(entries) != 1 {
		return Kernel{}, fmt.Errorf("%s holds %d kernels, want one", modules, len(entries))
	}
	return Kernel{Image: filepath.Join(dir, image), Modules: modules, Release: entries[0].Name()}, nil
}

func makeUML(ctx context.Context, b *builder, deb string) error {
	pkg, src, err := umlKernelSource(ctx, b, deb)
	if err != nil {
		return err
	}
	if err := buildNVMe(ctx, b, src); err != nil {
		return err
	}
	b.step("module tree")
	return assembleUML(ctx, b, pkg, src)
}

// umlKernelSource unpacks the package and the kernel source it was built from, and makes the
// source ready to compile modules.
func umlKernelSource(ctx context.Context, b *builder, deb string) (pkg, src string, err error) {
	version, err := builtUsing(ctx, deb)
	if err != nil {
		return "", "", err
	}
	b.step("kernel source %s (139 MB)", version)
	source, err := b.cache.deb(ctx, sourcePackage(version)+"="+version)
	if err != nil {
		return "", "", err
	}
	pkg, src = filepath.Join(b.work, "package"), filepath.Join(b.work, "src")
	if err := b.run(ctx, b.work, nil, "dpkg-deb", "-x", deb, pkg); err != nil {
		return "", "", err
	}
	if err := unpackKernelSource(ctx, b, source, version, src); err != nil {
		return "", "", err
	}
	return pkg, src, prepareKernelSource(ctx, b, src, filepath.Join(pkg, "usr/share/doc/user-mode-linux/config.gz"))
}

var linuxVersion = regexp.MustCompile(`\blinux \(= ([^)]+)\)`)

// builtUsing returns the version of the kernel source a user-mode-linux package was built from.
func builtUsing(ctx context.Context, deb string) (string, error) {
	field, err := output(ctx, "", nil, "dpkg-deb", "-f", deb, "Built-Using")
	if err != nil {
		return "", err
	}
	m := linuxVersion.FindStringSubmatch(field)
	if m == nil {
		return "", fmt.Errorf("%s: no linux version in Built-Using %q", filepath.Base(deb), field)
	}
	return m[1], nil
}

// sourcePackage names the package of a kernel source version: "6.1.176-1" is in
// linux-source-6.1.
func sourcePackage(version string) string {
	part := strings.SplitN(version, ".", 3)
	return "linux-source-" + strings.Join(part[:min(2, len(part))], ".")
}

func unpackKernelSource(ctx context.Context, b *builder, deb, version, src string) error {
	b.step("unpack the parts of kernel source %s that modules need", version)
	name := sourcePackage(version)
	if err := os.MkdirAll(filepath.Join(src, "Documentation"), 0o755); err != nil {
		return err
	}
	unpack := []string{"tar", "-x", "--strip-components=1", "--wildcards"}
	for _, p := range umlSource {
		unpack = append(unpack, strings.Replace(p, "SRC", name, 1))
	}
	err := b.pipe(ctx, src,
		[]string{"dpkg-deb", "--fsys-tarfile", deb},
		[]string{"tar", "-xO", "./usr/src/" + name + ".tar.xz"},
		[]string{"xz", "-dc"},
		unpack)
	if err != nil {
		return err
	}
	return writeFiles(src, map[string]string{"Documentation/Kconfig": ""})
}

// prepareKernelSource configures the source like the package's kernel, plus umlConfig.
func prepareKernelSource(ctx context.Context, b *builder, src, config string) error {
	b.step("configure the kernel source")
	if err := b.pipe(ctx, src, []string{"gzip", "-dc", config}, []string{"tee", ".config"}); err != nil {
		return err
	}
	if err := b.run(ctx, src, nil, append([]string{"scripts/config"}, umlConfig...)...); err != nil {
		return err
	}
	if err := makeKernel(ctx, b, src, "olddefconfig"); err != nil {
		return err
	}
	b.step("prepare the kernel source for modules")
	return makeKernel(ctx, b, src, "modules_prepare")
}

// buildNVMe compiles drivers/nvme, plus crypto/dh_generic, which has to know the groups that
// DH-CHAP uses.
func buildNVMe(ctx context.Context, b *builder, src string) error {
	b.step("compile drivers/nvme")
	if err := makeKernel(ctx, b, src, "M=drivers/nvme", "modules", "KBUILD_MODPOST_WARN=1"); err != nil {
		return err
	}
	return makeKernel(ctx, b, src, "crypto/dh_generic.ko", "KBUILD_MODPOST_WARN=1")
}

func makeKernel(ctx context.Context, b *builder, src string, args ...string) error {
	return b.run(ctx, src, nil, append([]string{"make", "ARCH=um", "-j2"}, args...)...)
}

func assembleUML(ctx context.Context, b *builder, pkg, src string) error {
	from := filepath.Join(pkg, "usr/lib/uml/modules")
	kernels, err := os.ReadDir(from)
	if err != nil || len(kernels) != 1 {
		return fmt.Errorf("module trees in the package: %v, want one (%w)", kernels, err)
	}
	release := kernels[0].Name()
	modules := filepath.Join(b.out, "lib/modules")
	if err := os.MkdirAll(modules, 0o755); err != nil {
		return err
	}
	tree := filepath.Join(modules, release)
	if err := os.Rename(filepath.Join(from, release), tree); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(pkg, "usr/bin/linux.uml"), filepath.Join(b.out, "linux.uml")); err != nil {
		return err
	}
	built, err := filepath.Glob(filepath.Join(src, "drivers/nvme/*/*.ko"))
	if err != nil {
		return err
	}
	nvme := filepath.Join(tree, "kernel/drivers/nvme")
	if err := os.MkdirAll(nvme, 0o755); err != nil {
		return err
	}
	moves := map[string]string{filepath.Join(src, "crypto/dh_generic.ko"): filepath.Join(tree, "kernel/crypto/dh_generic.ko")}
	for _, ko := range built {
		moves[ko] = filepath.Join(nvme, filepath.Base(ko))
	}
	for from, to := range moves {
		if err := os.Rename(from, to); err != nil {
			return err
		}
	}
	return b.run(ctx, b.out, nil, "depmod", "-b", b.out, release)
}
