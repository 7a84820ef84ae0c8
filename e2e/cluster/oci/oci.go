// Package oci writes container images without an engine or a registry: an OCI image layout
// as one tar file, which `ctr images import` reads.
//
//	oci-layout                      {"imageLayoutVersion": "1.0.0"}
//	index.json                      the manifest, annotated with the image's full name
//	blobs/sha256/<digest>           manifest, config, layers (uncompressed tar files)
//
// The format is the OCI image specification's image-layout.md, manifest.md and config.md.
package oci

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Image is what becomes a layout.
type Image struct {
	Name       string // full reference, as docker.io/library/busybox:1.37
	Entrypoint []string
	Env        []string
	Layers     []string // paths of uncompressed tar files, the lowest first
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	Manifests     []descriptor `json:"manifests"`
}

type config struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       runConfig `json:"config"`
	RootFS       rootFS    `json:"rootfs"`
}

type runConfig struct {
	Entrypoint []string `json:",omitempty"`
	Env        []string `json:",omitempty"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

const prefix = "application/vnd.oci.image."

// Write writes the layout of one image for linux/amd64. The same image gives the same
// bytes.
func (m Image) Write(w io.Writer) error {
	out := &layout{tar: tar.NewWriter(w), written: map[string]bool{}}
	cfg := config{Architecture: "amd64", OS: "linux", RootFS: rootFS{Type: "layers", DiffIDs: []string{}},
		Config: runConfig{Entrypoint: m.Entrypoint, Env: m.Env}}
	man := manifest{SchemaVersion: 2, MediaType: prefix + "manifest.v1+json"}
	for _, path := range m.Layers {
		d, err := out.file(path)
		if err != nil {
			return fmt.Errorf("layer of image %s: %w", m.Name, err)
		}
		man.Layers = append(man.Layers, d)
		cfg.RootFS.DiffIDs = append(cfg.RootFS.DiffIDs, d.Digest)
	}
	var err error
	if man.Config, err = out.json(prefix+"config.v1+json", cfg); err != nil {
		return fmt.Errorf("config of image %s: %w", m.Name, err)
	}
	top, err := out.json(prefix+"manifest.v1+json", man)
	if err != nil {
		return fmt.Errorf("manifest of image %s: %w", m.Name, err)
	}
	top.Annotations = map[string]string{"io.containerd.image.name": m.Name}
	if err := out.finish(top); err != nil {
		return fmt.Errorf("index of image %s: %w", m.Name, err)
	}
	return nil
}

// layout is a layout being written.
type layout struct {
	tar     *tar.Writer
	written map[string]bool // digests
}

func (l *layout) json(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return descriptor{}, err
	}
	sum := sha256.Sum256(data)
	return l.blob(mediaType, sum[:], int64(len(data)), bytes.NewReader(data))
}

func (l *layout) file(path string) (descriptor, error) {
	f, err := os.Open(path)
	if err != nil {
		return descriptor{}, err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return descriptor{}, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return descriptor{}, err
	}
	return l.blob(prefix+"layer.v1.tar", sum.Sum(nil), size, f)
}

func (l *layout) blob(mediaType string, sum []byte, size int64, data io.Reader) (descriptor, error) {
	name := hex.EncodeToString(sum)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: size}
	if l.written[name] {
		return d, nil
	}
	l.written[name] = true
	return d, l.entry("blobs/sha256/"+name, size, data)
}

func (l *layout) entry(name string, size int64, data io.Reader) error {
	if err := l.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
		return err
	}
	_, err := io.Copy(l.tar, data)
	return err
}

func (l *layout) finish(top descriptor) error {
	data, err := json.Marshal(index{SchemaVersion: 2, Manifests: []descriptor{top}})
	if err != nil {
		return err
	}
	if err := l.entry("index.json", int64(len(data)), bytes.NewReader(data)); err != nil {
		return err
	}
	version := `{"imageLayoutVersion":"1.0.0"}`
	if err := l.entry("oci-layout", int64(len(version)), bytes.NewReader([]byte(version))); err != nil {
		return err
	}
	return l.tar.Close()
}
