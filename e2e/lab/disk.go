package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// varSize is the size of a guest's /var: containerd's images and snapshots; sparse.
const varSize = 8 << 30

// makeDisks creates the images that do not exist and names them as the guest sees them.
func (g *Guest) makeDisks() error {
	varImage := g.Spec.Var
	if varImage == "" {
		varImage = filepath.Join(g.dir, "var.img")
	}
	if g.Spec.VarBacking == "" {
		if err := sparse(varImage, varSize); err != nil {
			return err
		}
	}
	g.images = []string{varImage}
	for i, disk := range g.Spec.Disks {
		image, err := g.spareDisk(i, disk)
		if err != nil {
			return err
		}
		g.images = append(g.images, image)
		g.Disks = append(g.Disks, g.lab.kind.device(i+1))
	}
	return nil
}

// lockDisks opens the guest's images with a lock. The guest's process inherits the files, so the
// locks last exactly as long as it. User-mode Linux itself locks a disk only while something in
// the guest has it open.
func (g *Guest) lockDisks() (files []*os.File, err error) {
	for _, image := range g.images {
		f, err := os.OpenFile(image, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the copy-on-write file of a first boot
		}
		if err != nil {
			return files, err
		}
		files = append(files, f)
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			return files, fmt.Errorf("disk %s is another guest's: %w", image, err)
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// spareDisk returns the image of a spare disk given as a size or a path.
func (g *Guest) spareDisk(i int, disk string) (string, error) {
	if filepath.IsAbs(disk) {
		_, err := os.Stat(disk)
		return disk, err
	}
	size, err := parseSize(disk)
	if err != nil {
		return "", err
	}
	image := filepath.Join(g.dir, fmt.Sprintf("disk%d.img", i))
	return image, sparse(image, size)
}

// parseSize takes "512MiB" or "1GiB" and returns bytes.
func parseSize(text string) (int64, error) {
	for suffix, unit := range map[string]int64{"MiB": 1 << 20, "GiB": 1 << 30} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil || n <= 0 {
				break
			}
			return n * unit, nil
		}
	}
	return 0, fmt.Errorf("disk %q is neither an absolute path nor a size like 1GiB", text)
}

// sparse makes a file of the size, all holes, unless there is a file already.
func sparse(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}
