package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"path/filepath"

	"github.com/pillar-csi/pillar/deploy/image"
	"github.com/pillar-csi/pillar/e2e/cluster/oci"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// toolFiles answers the files of the tools layer of pillar's image, which deploy/image
// decides. root is the guests' package tree with ZFS, which holds the same packages and what they
// depend on; it has no dpkg database, so the package files say what is of which package.
func toolFiles(ctx context.Context, cache *artifacts.Cache, root string) ([]oci.File, error) {
	files, err := image.Files(root, func(pkg string) ([]string, error) {
		deb, err := cache.Package(ctx, pkg)
		if err != nil {
			return nil, err
		}
		return debPaths(ctx, deb)
	})
	var out []oci.File
	for _, f := range files {
		out = append(out, oci.File(f))
	}
	return out, err
}

// debPaths answers the paths in a package file, directories aside.
func debPaths(ctx context.Context, deb string) ([]string, error) {
	data, err := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb).Output()
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
	}
	var paths []string
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return paths, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Base(deb), err)
		}
		if h.Typeflag != tar.TypeDir {
			paths = append(paths, path.Clean("/"+h.Name))
		}
	}
}
