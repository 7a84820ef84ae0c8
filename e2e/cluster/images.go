package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pillar-csi/pillar/deploy/image"
	"github.com/pillar-csi/pillar/e2e/cluster/oci"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

const (
	pauseImage  = "registry.k8s.io/pause:3.10"
	pillarImage = "ghcr.io/pillar-csi/pillar:v0.1.0"
)

// recipe says what is in an image: an own program or one of the tools, at the place where
// the official image has it, or a list of files.
type recipe struct {
	name    string
	program string // of this package's folder programs
	tool    string // of Tools
	at      string // the entrypoint
}

// recipes are the images of one program. The node template holds them under the names
// that the manifests use.
var recipes = []recipe{
	{name: pauseImage, program: "pause", at: "/pause"},
	{name: "registry.k8s.io/sig-storage/csi-provisioner:v6.4.0", tool: "csi-provisioner", at: "/csi-provisioner"},
	{name: "registry.k8s.io/sig-storage/csi-attacher:v4.13.0", tool: "csi-attacher", at: "/csi-attacher"},
	{name: "registry.k8s.io/sig-storage/csi-resizer:v2.3.0", tool: "csi-resizer", at: "/csi-resizer"},
	{name: "registry.k8s.io/sig-storage/csi-node-driver-registrar:v2.18.0", program: "registrar", at: "/csi-node-driver-registrar"},
	{name: "registry.k8s.io/sig-storage/livenessprobe:v2.20.0", program: "livenessprobe", at: "/livenessprobe"},
}

// busyboxImage is what pods of tests and samples run.
const busyboxImage = "docker.io/library/busybox:1.37"

// imageNames are the names of all images a node has from the start.
func imageNames() []string {
	names := []string{busyboxImage, pillarImage}
	for _, r := range recipes {
		names = append(names, r.name)
	}
	return names
}

// imageBuilder makes the layout tars of all images in dir.
type imageBuilder struct {
	cache *artifacts.Cache
	repo  string // root of the checkout
	tools string // folder of Tools
	root  string // the guests' package tree
	dir   string
}

func (b *imageBuilder) all(ctx context.Context, step func(string, ...any)) error {
	for _, r := range recipes {
		step("image %s", r.name)
		if err := b.program(ctx, r); err != nil {
			return err
		}
	}
	step("image %s", busyboxImage)
	files, err := b.busybox(ctx)
	if err != nil {
		return err
	}
	if err := b.write(oci.Image{Name: busyboxImage}, files); err != nil {
		return err
	}
	step("image %s: the tools layer; the lab mounts the binary", pillarImage)
	if files, err = toolFiles(ctx, b.cache, b.root); err != nil {
		return err
	}
	layer := filepath.Join(b.dir, toolsLayer)
	if err := writeFile(layer, func(f *os.File) error { return oci.WriteLayer(f, files) }); err != nil {
		return fmt.Errorf("tools layer: %w", err)
	}
	return writePillarImage(b.dir, layer)
}

// toolsLayer is the name of the tools layer beside the images.
const toolsLayer = "tools.layer"

// writePillarImage writes pillar's image with the given layers to dir.
func writePillarImage(dir string, layers ...string) error {
	made := oci.Image{Name: pillarImage, Entrypoint: []string{"/pillar"}, Env: image.Env, Layers: layers}
	return writeFile(filepath.Join(dir, fileName(pillarImage)), func(f *os.File) error { return made.Write(f) })
}

// fileName is an image's name with its slashes and colon replaced.
func fileName(image string) string {
	return strings.NewReplacer("/", "_", ":", "_").Replace(image) + ".tar"
}

func (b *imageBuilder) program(ctx context.Context, r recipe) error {
	source := filepath.Join(b.tools, r.tool)
	if r.program != "" {
		source = filepath.Join(b.dir, "."+r.program)
		defer os.Remove(source)
		if err := goBuild(ctx, b.repo, source, "./e2e/cluster/programs/"+r.program, "-s -w"); err != nil {
			return err
		}
	}
	return b.write(oci.Image{Name: r.name, Entrypoint: []string{r.at}}, []oci.File{{Path: r.at, Source: source}})
}

func (b *imageBuilder) busybox(ctx context.Context) ([]oci.File, error) {
	source := filepath.Join(b.root, "usr", "bin", "busybox")
	applets, err := exec.CommandContext(ctx, source, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("list the applets of busybox: %w", err)
	}
	files := []oci.File{
		{Path: "/bin/busybox", Source: source},
		{Path: "/tmp", Mode: 0o1777},
		{Path: "/etc/passwd", Data: []byte("root:x:0:0:root:/:/bin/sh\n")},
	}
	for _, name := range strings.Fields(string(applets)) {
		if name != "busybox" {
			files = append(files, oci.File{Path: "/bin/" + name, Link: "busybox"})
		}
	}
	return files, nil
}

// write makes the image's only layer of the files and then the image's tar.
func (b *imageBuilder) write(image oci.Image, files []oci.File) error {
	layer := filepath.Join(b.dir, ".layer")
	defer os.Remove(layer)
	if err := writeFile(layer, func(f *os.File) error { return oci.WriteLayer(f, files) }); err != nil {
		return fmt.Errorf("layer of %s: %w", image.Name, err)
	}
	image.Layers = []string{layer}
	return writeFile(filepath.Join(b.dir, fileName(image.Name)), func(f *os.File) error { return image.Write(f) })
}

func writeFile(path string, fill func(*os.File) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := fill(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
