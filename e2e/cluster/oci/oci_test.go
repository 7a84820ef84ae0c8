package oci

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteLayer(t *testing.T) {
	source := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(source, []byte("elf"), 0o600); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	err := WriteLayer(&b, []File{
		{Path: "/usr/bin/tool", Source: source},
		{Path: "/usr/bin/alias", Link: "tool"},
		{Path: "/etc/tool.conf", Data: []byte("x=1\n")},
		{Path: "/tmp", Mode: 0o1777},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"etc/ d 755 ", "etc/tool.conf f 644 x=1\n", "tmp/ d 1777 ", "usr/ d 755 ", "usr/bin/ d 755 ",
		"usr/bin/alias l 777 tool", "usr/bin/tool f 755 elf"}
	if diff := cmp.Diff(want, list(t, b.Bytes())); diff != "" {
		t.Errorf("WriteLayer wrote (-want +got):\n%s", diff)
	}
}

func list(t *testing.T, data []byte) []string {
	t.Helper()
	kinds := map[byte]string{tar.TypeDir: "d", tar.TypeReg: "f", tar.TypeSymlink: "l"}
	var out []string
	in := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, h.Name+" "+kinds[h.Typeflag]+" "+octal(h.Mode)+" "+h.Linkname+string(content))
	}
}

func octal(mode int64) string {
	data := []byte{}
	for ; mode > 0; mode /= 8 {
		data = append([]byte{byte('0' + mode%8)}, data...)
	}
	return string(data)
}

func TestImage_Write(t *testing.T) {
	layer := filepath.Join(t.TempDir(), "layer.tar")
	if err := os.WriteFile(layer, []byte("layer"), 0o600); err != nil {
		t.Fatal(err)
	}
	image := Image{Name: "registry.example/one:v1", Entrypoint: []string{"/one"}, Layers: []string{layer, layer}}
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := image.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("Write of the same image gave different bytes")
	}
	files := map[string][]byte{}
	in := tar.NewReader(&first)
	for h, err := in.Next(); err == nil; h, err = in.Next() {
		files[h.Name], _ = io.ReadAll(in)
	}
	var top index
	if err := json.Unmarshal(files["index.json"], &top); err != nil || len(top.Manifests) != 1 {
		t.Fatalf("index.json = %s (%v), want one manifest", files["index.json"], err)
	}
	if got := top.Manifests[0].Annotations["io.containerd.image.name"]; got != image.Name {
		t.Errorf("image name = %q, want %q", got, image.Name)
	}
	var man manifest
	if err := json.Unmarshal(files["blobs/sha256/"+top.Manifests[0].Digest[len("sha256:"):]], &man); err != nil {
		t.Fatal(err)
	}
	if len(man.Layers) != 2 || man.Layers[0].Size != 5 {
		t.Errorf("layers = %+v, want two of 5 bytes", man.Layers)
	}
}
