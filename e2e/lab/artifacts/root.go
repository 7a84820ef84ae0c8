package artifacts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// GuestPackages are what a guest has installed, besides what they depend on: the storage
// tools an administrator of a storage node or worker would have, and containerd for kubelets.
var GuestPackages = []string{
	"busybox-static", "bash", "coreutils", "grep", "sed", "util-linux", "mount", "kmod", "iproute2",
	"procps", "udev", "strace", "lvm2", "dmsetup", "thin-provisioning-tools", "e2fsprogs", "xfsprogs",
	"nvme-cli", "containerd", "runc", "containernetworking-plugins",
}

// rootFiles are the files that maintainer scripts would have written; they are not run.
var rootFiles = map[string]string{
	"etc/passwd":        "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
	"etc/group":         "root:x:0:\ntty:x:5:\ndisk:x:6:\nkmem:x:15:\ninput:x:101:\nkvm:x:102:\nnogroup:x:65534:\n",
	"etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	"etc/fstab":         "",
	"etc/resolv.conf":   "",
	"etc/machine-id":    "",
	"etc/profile":       "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
	"etc/crictl.yaml":   "runtime-endpoint: unix:///run/containerd/containerd.sock\n",
	"root/.bashrc":      "PS1='\\h:\\w# '\n",
}

// rootDirs are mount points and directories programs expect.
var rootDirs = []string{"dev", "proc", "sys", "run", "tmp", "mnt", "opt/cni", "host", "cache", "usr/lib/modules",
	"var/lib/kubelet", "var/log", "var/tmp", "root"}

// rootTrash is not needed in a guest; without it the tree is a third smaller.
var rootTrash = []string{"usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "usr/share/lintian",
	"usr/share/bash-completion", "var/cache/apt", "var/lib/apt", "var/cache/debconf"}

// Root returns the guests' root directory: a Debian package tree without running any
// package's scripts, completed by hand.
func (c *Cache) Root(ctx context.Context) (string, error) {
	inputs := append([]string{suite, "2"}, GuestPackages...)
	for _, path := range sortedKeys(rootFiles) {
		inputs = append(inputs, path, rootFiles[path])
	}
	dir, err := c.get(ctx, artifact{
		name: "root",
		why:  "the files of all guests, from Debian packages",
		key:  append(append(inputs, rootDirs...), rootTrash...),
		make: makeRoot,
	})
	return dir, err
}

func makeRoot(ctx context.Context, b *builder) error {
	a, err := b.cache.apt(ctx)
	if err != nil {
		return err
	}
	b.step("unpack %d Debian packages and what they depend on", len(GuestPackages))
	argv := []string{"mmdebstrap", "--mode=root", "--variant=extract", "--architectures=amd64",
		"--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
		"--aptopt=APT::Install-Recommends \"false\"", "--aptopt=APT::Sandbox::User \"root\""}
	for _, o := range a.options {
		name, value, _ := strings.Cut(o, "=")
		argv = append(argv, fmt.Sprintf("--aptopt=%s %q", name, value))
	}
	argv = append(argv, "--include="+strings.Join(GuestPackages, ","), suite, b.out, a.sources)
	if err := b.run(ctx, b.work, []string{"TMPDIR=" + b.work}, argv...); err != nil {
		return err
	}
	b.step("complete the guest root")
	return completeRoot(ctx, b.out)
}

func completeRoot(ctx context.Context, root string) error {
	for _, path := range rootTrash {
		if err := os.RemoveAll(filepath.Join(root, path)); err != nil {
			return err
		}
	}
	for _, dir := range rootDirs {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	if err := writeFiles(root, rootFiles); err != nil {
		return err
	}
	links := map[string]string{"etc/mtab": "/proc/self/mounts", "usr/bin/sh": "bash", "var/run": "/run",
		"var/lock": "/run/lock", "opt/cni/bin": "/usr/lib/cni", "etc/os-release": "../usr/lib/os-release"}
	for path, target := range links {
		if err := link(target, filepath.Join(root, path)); err != nil {
			return err
		}
	}
	return linkApplets(ctx, root)
}

// linkApplets gives every program that no package brought (awk, find, vi ...) as an applet of
// busybox.
func linkApplets(ctx context.Context, root string) error {
	applets, err := output(ctx, "", nil, filepath.Join(root, "usr/bin/busybox"), "--list")
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(applets) {
		if _, err := os.Lstat(filepath.Join(root, "usr/sbin", name)); err == nil {
			continue
		}
		if err := link("busybox", filepath.Join(root, "usr/bin", name)); err != nil {
			return err
		}
	}
	return nil
}
