package oci

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
)

// File is one file of a layer. Exactly one of Source, Link, Data says what it is; none of
// them makes a directory.
type File struct {
	Path   string // absolute, in the image
	Source string // a host file to copy
	Link   string // target of a symbolic link
	Data   []byte
	Mode   int64 // 0 means 0755, or 0644 with Data
}

// WriteLayer writes an uncompressed layer with the files, their parent directories and no
// times or owners but root, so that the same files give the same bytes.
func WriteLayer(w io.Writer, files []File) error {
	out := tar.NewWriter(w)
	for _, f := range withParents(files) {
		if err := f.write(out); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return out.Close()
}

func withParents(files []File) []File {
	have := map[string]bool{"/": true}
	for _, f := range files {
		have[f.Path] = true
	}
	all := slices.Clone(files)
	for _, f := range files {
		for dir := path.Dir(f.Path); !have[dir]; dir = path.Dir(dir) {
			have[dir] = true
			all = append(all, File{Path: dir})
		}
	}
	slices.SortFunc(all, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return slices.CompactFunc(all, func(a, b File) bool { return a.Path == b.Path })
}

func (f File) write(out *tar.Writer) error {
	h := &tar.Header{Name: f.Path[1:], Mode: f.Mode, Typeflag: tar.TypeReg}
	if h.Mode == 0 {
		h.Mode = 0o755
	}
	var data io.Reader = bytes.NewReader(f.Data)
	switch {
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case f.Source != "":
		in, err := os.Open(f.Source)
		if err != nil {
			return err
		}
		defer in.Close()
		info, err := in.Stat()
		if err != nil {
			return err
		}
		h.Size, data = info.Size(), in
	case f.Data != nil:
		h.Size = int64(len(f.Data))
		if f.Mode == 0 {
			h.Mode = 0o644
		}
	default:
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
	}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	_, err := io.Copy(out, data)
	return err
}
