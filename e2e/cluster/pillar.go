package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pillar-csi/pillar/e2e/cluster/oci"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// ImageVar set to 1 puts the binary into pillar's image, as users run it. Otherwise guests
// see it as /lab/bin/pillar-<hash>, and a changed binary needs no new image.
const ImageVar = "PILLAR_LAB_IMAGE"

// labVersion is the linker flag for the version a binary built here reports.
const labVersion = "-X github.com/pillar-csi/pillar/roles/telemetry.Version=lab"

// binariesKept is how many binaries of the product stay in the cache.
const binariesKept = 5

// BuildProduct builds pillar's binary from the checkout as the file out.
func BuildProduct(ctx context.Context, out string) error {
	_, repo, err := openCache()
	if err != nil {
		return err
	}
	return goBuild(ctx, repo, out, ".", "-s -w "+labVersion)
}

// buildPillar builds the product of the checkout and answers its path in the cache, whose
// name holds the content's hash. Only the newest binaries stay there.
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
	if err := goBuild(ctx, s.repo, built, ".", "-s -w "+labVersion); err != nil {
		return "", err
	}
	data, err := os.ReadFile(built)
	if err != nil {
		return "", fmt.Errorf("read the built binary: %w", err)
	}
	sum := sha256.Sum256(data)
	path := filepath.Join(dir, "pillar-"+hex.EncodeToString(sum[:])[:12])
	if err := os.Rename(built, path); err != nil {
		return "", err
	}
	return path, prune(dir, binariesKept)
}

// prune removes all but the newest files of a folder. A lab that runs holds its own link.
func prune(dir string, keep int) error {
	entries, err := filepath.Glob(filepath.Join(dir, "pillar-*"))
	if err != nil {
		return err
	}
	age := map[string]time.Time{}
	for _, e := range entries {
		info, err := os.Stat(e)
		if err != nil {
			return fmt.Errorf("remove old binaries: %w", err)
		}
		age[e] = info.ModTime()
	}
	slices.SortFunc(entries, func(a, b string) int { return age[b].Compare(age[a]) })
	for _, e := range entries[min(keep, len(entries)):] {
		if err := os.Remove(e); err != nil {
			return fmt.Errorf("remove old binaries: %w", err)
		}
	}
	return nil
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
	cache := *s.cache
	cache.Offline = false // it is made of what the cache has
	return cache.Get(ctx, artifacts.Artifact{
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
