package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pillar-csi/pillar/e2e/cluster/oci"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// imageVar set to 1 puts the binary into pillar's image, as users run it. Otherwise guests
// see it as /lab/bin/pillar-<hash>, and a changed binary needs no new image.
const imageVar = "PILLAR_LAB_IMAGE"

// buildPillar builds the product of the checkout and answers its path in the cache, whose
// name holds the content's hash. Names of older binaries stay while the folder is small.
func (s *artifactSet) buildPillar(ctx context.Context) (string, error) {
	dir := filepath.Join(s.cache.Dir, "pillar")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder of the binary: %w", err)
	}
	tmp, err := os.MkdirTemp(dir, ".build-")
	if err != nil {
		return "", fmt.Errorf("folder of the binary: %w", err)
	}
	defer os.RemoveAll(tmp)
	built := filepath.Join(tmp, "pillar")
	const version = "-X github.com/pillar-csi/pillar/roles/telemetry.Version=lab"
	if err := goBuild(ctx, s.repo, built, ".", "-s -w "+version); err != nil {
		return "", err
	}
	data, err := os.ReadFile(built)
	if err != nil {
		return "", fmt.Errorf("read the built binary: %w", err)
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, "pillar-"+hex.EncodeToString(sum[:])[:12])
	return path, os.Rename(built, path)
}

// showPillar puts the binary where every guest sees it and answers its path there.
func (c *Cluster) showPillar() (string, error) {
	if err := os.MkdirAll(c.binDir(), 0o755); err != nil {
		return "", err
	}
	name := filepath.Base(c.artifacts.binary)
	if err := os.Link(c.artifacts.binary, filepath.Join(c.binDir(), name)); err != nil {
		return "", fmt.Errorf("show the binary to the guests: %w", err)
	}
	return "/lab/bin/" + name, nil
}

// binDir is the host's folder that every guest sees as /lab/bin.
func (c *Cluster) binDir() string { return filepath.Join(c.lab.HostDir, "bin") }

// closeImage answers a folder with pillar's image, the binary as its second layer.
func (s *artifactSet) closeImage(ctx context.Context) (string, error) {
	return s.cache.Get(ctx, artifacts.Artifact{
		Name: "pillar-image", Why: "pillar's image with the binary in it",
		Key: []string{filepath.Base(s.images), filepath.Base(s.binary)},
		Make: func(_ context.Context, dir string, step func(string, ...any)) error {
			step("image %s with its binary", pillarImage)
			layer := filepath.Join(dir, ".layer")
			defer os.Remove(layer)
			files := []oci.File{{Path: "/pillar", Source: s.binary}}
			if err := writeFile(layer, func(f *os.File) error { return oci.WriteLayer(f, files) }); err != nil {
				return fmt.Errorf("binary layer: %w", err)
			}
			return writePillarImage(dir, filepath.Join(s.images, toolsLayer), layer)
		},
	})
}
