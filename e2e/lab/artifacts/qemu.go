package artifacts

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// qemuKernel is the package that depends on the stock kernel of the QEMU kind: 6.12.
const qemuKernel = "linux-image-amd64/" + suite + "-backports"

// qemuModules are the parts of the module tree that a storage node or worker can need. The rest,
// drivers of real hardware, is most of the tree.
var qemuModules = regexp.MustCompile(`^kernel/(fs|crypto|lib|net|arch|block|mm|drivers/(nvme|md|block|virtio|target|scsi|dax|char/hw_random|net/[^/]*\.ko))(/|\.|$)`)

// QEMU returns Debian's stock kernel, uncompressed for a faster start, and its modules.
func (c *Cache) QEMU(ctx context.Context) (Kernel, error) {
	spec, err := c.qemuImage(ctx)
	if err != nil {
		return Kernel{}, err
	}
	dir, err := c.get(ctx, artifact{
		name: "qemu",
		why:  "the stock Debian kernel of the second kind of guest",
		key:  []string{spec, "1", qemuModules.String()},
		make: func(ctx context.Context, b *builder) error { return makeQEMU(ctx, b, spec) },
	})
	if err != nil {
		return Kernel{}, err
	}
	return kernelIn(dir, "vmlinux")
}

// qemuImage is the package of the kernel, NAME=VERSION.
func (c *Cache) qemuImage(ctx context.Context) (string, error) {
	meta, err := c.deb(ctx, qemuKernel)
	if err != nil {
		return "", err
	}
	depends, err := output(ctx, "", nil, "dpkg-deb", "-f", meta, "Depends")
	if err != nil {
		return "", err
	}
	spec, err := imagePackage(depends)
	if err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Base(meta), err)
	}
	return spec, nil
}

var imageDepends = regexp.MustCompile(`(linux-image-[^ ]+) \(= ([^)]+)\)`)

// imagePackage takes "linux-image-6.12.95+deb12-amd64 (= 6.12.95-1~bpo12+1)" from a field and
// returns NAME=VERSION.
func imagePackage(depends string) (string, error) {
	m := imageDepends.FindStringSubmatch(depends)
	if m == nil {
		return "", fmt.Errorf("no kernel image in Depends %q", depends)
	}
	return m[1] + "=" + m[2], nil
}

func makeQEMU(ctx context.Context, b *builder, spec string) error {
	b.step("package %s", spec)
	deb, err := b.cache.deb(ctx, spec)
	if err != nil {
		return err
	}
	pkg := filepath.Join(b.work, "package")
	if err := b.run(ctx, b.work, nil, "dpkg-deb", "-x", deb, pkg); err != nil {
		return err
	}
	images, err := filepath.Glob(filepath.Join(pkg, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return fmt.Errorf("kernels in the package: %q, want one", images)
	}
	b.step("uncompress the kernel")
	if err := uncompressKernel(images[0], filepath.Join(b.out, "vmlinux")); err != nil {
		return fmt.Errorf("uncompress %s: %w", filepath.Base(images[0]), err)
	}
	release := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	b.step("uncompress the modules")
	if err := keepModules(filepath.Join(pkg, "lib/modules", release), filepath.Join(b.out, "lib/modules", release)); err != nil {
		return err
	}
	if err := b.run(ctx, b.out, nil, "find", ".", "-name", "*.ko.xz", "-exec", "xz", "-d", "{}", "+"); err != nil {
		return err
	}
	return b.run(ctx, b.out, nil, "depmod", "-b", b.out, release)
}

// keepModules moves the wanted modules and the lists of built-in ones.
func keepModules(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if !qemuModules.MatchString(name) && !strings.HasPrefix(name, "modules.builtin") && name != "modules.order" {
			return nil
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o755); err != nil {
			return err
		}
		return os.Rename(path, filepath.Join(to, name))
	})
}

// uncompressKernel takes the ELF kernel out of a bzImage. Where it is says the header:
// Documentation/arch/x86/boot.rst, setup_sects, payload_offset and payload_length.
func uncompressKernel(bzImage, vmlinux string) error {
	image, err := os.ReadFile(bzImage)
	if err != nil {
		return err
	}
	payload, err := kernelPayload(image)
	if err != nil {
		return err
	}
	r, err := zstd.NewReader(strings.NewReader(string(payload)))
	if err != nil {
		return err
	}
	defer r.Close()
	out, err := os.Create(vmlinux)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, r)
	return errors.Join(err, out.Close())
}

func kernelPayload(image []byte) ([]byte, error) {
	if len(image) < 0x250 || string(image[0x202:0x206]) != "HdrS" {
		return nil, errors.New("not a bzImage")
	}
	start := (uint64(image[0x1f1])+1)*512 + uint64(binary.LittleEndian.Uint32(image[0x248:]))
	end := start + uint64(binary.LittleEndian.Uint32(image[0x24c:]))
	if start+8 > end || end > uint64(len(image)) {
		return nil, errors.New("payload lies outside the file")
	}
	payload := image[start : end-4] // the uncompressed size is appended
	if binary.LittleEndian.Uint32(payload) != 0xfd2fb528 {
		return nil, errors.New("payload is not zstd")
	}
	return payload, nil
}
