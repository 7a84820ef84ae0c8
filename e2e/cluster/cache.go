package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// artifactSet is what a cluster needs of the lab's cache.
type artifactSet struct {
	cache  *artifacts.Cache
	repo   string // root of the checkout
	tools  string // folder of Tools
	images string // folder with a layout tar per image
	binary string // the product, built from the checkout
	closed string // folder with pillar's image, binary included; empty means: mount the binary
}

// openCache answers the lab's cache with progress on standard error, and the root of the
// checkout around the working directory. Inside a lab nothing can be downloaded, so what
// is missing there is artifacts.ErrMissing at once.
func openCache() (*artifacts.Cache, string, error) {
	dir, err := artifacts.Dir()
	if err != nil {
		return nil, "", err
	}
	repo, err := artifacts.ModuleRoot(".")
	if err != nil {
		return nil, "", err
	}
	inside := os.Getenv(namespace.RunVar) != ""
	return &artifacts.Cache{Dir: dir, Log: os.Stderr, Offline: inside}, repo, nil
}

// Build makes everything a cluster needs except the node template, which needs a guest. It
// may download packages and Go modules, so it runs outside of the lab's namespaces.
func Build(ctx context.Context) error {
	made, err := build(ctx)
	if err != nil {
		return err
	}
	return made.cache.Prune("k8s", "images", "template", "pillar-image")
}

func build(ctx context.Context) (*artifactSet, error) {
	cache, repo, err := openCache()
	if err != nil {
		return nil, err
	}
	s := &artifactSet{cache: cache, repo: repo}
	if s.tools, err = Tools(ctx, cache, repo); err != nil {
		return nil, err
	}
	if s.images, err = s.buildImages(ctx); err != nil {
		return nil, err
	}
	if s.binary, err = s.buildPillar(ctx); err != nil {
		return nil, err
	}
	if os.Getenv(ImageVar) == "1" {
		s.closed, err = s.closeImage(ctx)
	}
	return s, err
}

// Programs answers the folder of etcd, Kubernetes and the sidecars.
func Programs(ctx context.Context) (string, error) {
	cache, repo, err := openCache()
	if err != nil {
		return "", err
	}
	return Tools(ctx, cache, repo)
}

// buildImages answers the folder of layout tars. Their key is every input: the tools'
// folder and the guests' package tree by name, own files by content.
func (s *artifactSet) buildImages(ctx context.Context) (string, error) {
	root, err := s.cache.ZFSRoot(ctx)
	if err != nil {
		return "", err
	}
	key := []string{runtime.Version(), filepath.Base(s.tools), filepath.Base(root), fmt.Sprint(recipes, busyboxImage, pillarImage)}
	for _, pattern := range []string{"go.mod", "deploy/image/*.txt", "deploy/image/*.conf", "deploy/image/image.go", "deploy/image/closure.go",
		"e2e/cluster/images.go", "e2e/cluster/toolslayer.go", "e2e/cluster/oci/*.go", "e2e/cluster/programs/*/*.go"} {
		files, err := filepath.Glob(filepath.Join(s.repo, pattern))
		if err != nil {
			return "", err
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				return "", fmt.Errorf("key of the images: %w", err)
			}
			key = append(key, strings.TrimPrefix(f, s.repo), string(data))
		}
	}
	return s.cache.Get(ctx, artifacts.Artifact{
		Name: "images", Why: "container images of the sidecars, the tools of pillar's image, busybox", Key: key,
		Make: func(ctx context.Context, dir string, step func(string, ...any)) error {
			b := &imageBuilder{cache: s.cache, repo: s.repo, tools: s.tools, root: root, dir: dir}
			return b.all(ctx, step)
		},
	})
}
