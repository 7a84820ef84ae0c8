// Package image decides which files pillar's image holds besides the binary: the programs
// of a few Debian packages, the libraries those load and their configuration; no shell and
// no package manager.
//
//	/usr/bin /usr/sbin       the programs of packages.txt; scripts and leftOut are not
//	/usr/lib/<triplet>       every library that a program or another library names
//	/usr/share/xfsprogs      the profile of mkfs.xfs
//	/etc                     lvm.conf of this folder, mke2fs.conf, mtab
//	/bin /sbin /lib /lib64   links into /usr, as in Debian
//
// The Dockerfile (by the command closure) and the lab (e2e/cluster) both copy what Files
// answers, so there is one list.
package image

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed packages.txt
var packages string

//go:embed lvm.conf
var lvmConf []byte

// Packages are the Debian packages whose programs are in the image.
func Packages() []string { return strings.Fields(packages) }

// Programs are what pillar runs by name; an image without one of them is not built.
var Programs = []string{
	"lvchange", "lvcreate", "lvextend", "lvremove", "lvs", "vgmknodes", "vgs",
	"mkfs.ext4", "mkfs.xfs", "resize2fs", "xfs_growfs",
	"modprobe",
	"zfs", "zpool",
}

// called are the programs that Programs run themselves: LVM checks the metadata of a thin
// pool before it activates the pool.
var called = []string{"thin_check"}

// leftOut are programs that nothing runs and whose libraries would double the image: ICU is
// 37 MB, libzpool 4 MB.
var leftOut = []string{"xfs_scrub", "zdb", "zhack", "zstream", "zstreamdump"}

// configuration are the packages' files that Programs or pillar read.
var configuration = []string{"/etc/mke2fs.conf", "/usr/share/xfsprogs/mkfs/lts_5.15.conf"}

// Env is the image's environment: where Programs are found.
var Env = []string{"PATH=/usr/sbin:/usr/bin"}

// File is one file of the image. Exactly one of Source, Link, Data says what it is; none of
// them makes a directory.
type File struct {
	Path   string // absolute, in the image
	Source string // a host file to copy
	Link   string // target of a symbolic link
	Data   []byte
	Mode   int64 // 0 means 0755, or 0644 with Data
}

// Files answers the files of the image without the binary, sorted by path. root is a tree
// with merged /usr that holds Packages and what they depend on. list answers the paths of
// one package, as dpkg(1) lists them.
func Files(root string, list func(pkg string) ([]string, error)) ([]File, error) {
	c := &closure{root: root, files: map[string]File{}}
	c.frame()
	for _, pkg := range Packages() {
		paths, err := list(pkg)
		if err != nil {
			return nil, fmt.Errorf("files of package %s: %w", pkg, err)
		}
		for _, p := range paths {
			if err := c.packageFile(p); err != nil {
				return nil, fmt.Errorf("package %s: %w", pkg, err)
			}
		}
	}
	if missing := c.missing(); len(missing) > 0 {
		return nil, fmt.Errorf("packages %s lack %s, which pillar needs",
			strings.Join(Packages(), " "), strings.Join(missing, " "))
	}
	return c.list(), nil
}

// missing are the files pillar needs and the closure has not.
func (c *closure) missing() (names []string) {
	for _, p := range configuration {
		if _, ok := c.files[p]; !ok {
			names = append(names, p)
		}
	}
	for _, name := range slices.Concat(Programs, called) {
		if !slices.ContainsFunc(programDirs, func(dir string) bool { _, ok := c.files[dir+"/"+name]; return ok }) {
			names = append(names, name)
		}
	}
	return names
}
