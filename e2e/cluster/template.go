package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pillar-csi/pillar/e2e/lab"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

// importImages fills containerd's store of a guest from layout tars, later ones replacing
// earlier ones of the same name, then
// freezes /var so that the disk holds a clean file system when the guest is killed.
const importImages = `set -e
containerd --config /host/template/containerd.toml </dev/null >/var/log/containerd.log 2>&1 &
until ctr version >/dev/null 2>&1; do sleep 0.05; done
for tar in %s; do ctr -n k8s.io images import $tar; done
kill %%1; wait %%1 || true
rm /var/log/containerd.log
sync
fsfreeze -f /var
`

// buildTemplate answers the disk every node's /var is a copy-on-write of: formatted, and
// with all images imported. It is keyed by the images.
func (c *Cluster) buildTemplate(ctx context.Context) (string, error) {
	tars := "/cache/" + filepath.Base(c.artifacts.images) + "/*.tar"
	if c.artifacts.closed != "" {
		tars += " /cache/" + filepath.Base(c.artifacts.closed) + "/*.tar"
	}
	cache := *c.artifacts.cache
	cache.Offline = false // it is made of what the cache has
	dir, err := cache.Get(ctx, artifacts.Artifact{
		Name: "template", Why: "the disk of every node, with all images imported in a guest",
		Key: []string{tars, importImages, containerdConfig("template")},
		Make: func(ctx context.Context, dir string, step func(string, ...any)) error {
			step("importing images in a guest")
			return c.makeTemplate(ctx, filepath.Join(dir, "var.img"), tars)
		},
	})
	return filepath.Join(dir, "var.img"), err
}

func (c *Cluster) makeTemplate(ctx context.Context, disk, tars string) error {
	config := filepath.Join(c.lab.HostDir, "template")
	if err := os.MkdirAll(config, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(config, "containerd.toml"), []byte(containerdConfig("template")), 0o644); err != nil {
		return err
	}
	g, err := c.lab.Boot(ctx, lab.GuestSpec{
		Name: "template", Address: "10.66.0.250", CPU: 1, MemoryMB: 1024, Var: disk, Modules: []string{"overlay"},
	})
	if err != nil {
		return fmt.Errorf("boot the guest that imports images: %w", err)
	}
	if _, err := g.Exec(ctx, fmt.Sprintf(importImages, tars)); err != nil {
		return fmt.Errorf("import images: %w", err)
	}
	return g.Kill()
}
