package settings

import (
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage/filesystem"
	"github.com/pillar-csi/pillar/transport"
)

// filesystem is the built-in filesystem under those of class and claim; nil for raw
// block volumes, where a class's document is ignored and a claim's is refused.
func (l Layers) filesystem() (*v1alpha1.Filesystem, error) {
	if l.Block {
		if l.VolumeDocs.Filesystem != "" {
			return nil, &FieldError{Key: v1alpha1.FilesystemKey, Why: "does not apply to volumeMode: Block", Fix: "remove the annotation"}
		}
		return nil, nil
	}
	fs, err := l.classFilesystem()
	if err != nil {
		return nil, err
	}
	if text := l.VolumeDocs.Filesystem; text != "" {
		volume, err := decodeFilesystem(v1alpha1.FilesystemKey, text)
		if err != nil {
			return nil, err
		}
		replace(&fs.FSType, volume.FSType)
		replacePtr(&fs.MkfsOptions, volume.MkfsOptions)
		replacePtr(&fs.MountOptions, volume.MountOptions)
		replacePtr(&fs.PeriodicTrim, volume.PeriodicTrim)
	}
	return fs, checkFilesystem(fs, ProtocolKind(l.Protocol.Protocol))
}

// classFilesystem is layers 1 and 2. The mount options of a PillarStorageClass are left
// out: its StorageClass carries them to the node as mount flags.
func (l Layers) classFilesystem() (*v1alpha1.Filesystem, error) {
	base := v1alpha1.FSTypeExt4
	if l.Protocol.Protocol.NFS != nil {
		base = v1alpha1.FSTypeNFS
	}
	fs := &v1alpha1.Filesystem{FSType: base}
	if l.Class != nil {
		if from := l.Class.Filesystem; from != nil {
			replace(&fs.FSType, from.FSType)
			fs.MkfsOptions, fs.PeriodicTrim = from.MkfsOptions, from.PeriodicTrim
		}
		return fs, nil
	}
	replace(&fs.FSType, l.FSType)
	if l.ClassDocs.Filesystem == "" {
		return fs, nil
	}
	doc, err := decodeFilesystem(v1alpha1.FilesystemKey, l.ClassDocs.Filesystem)
	if err != nil {
		return nil, err
	}
	if doc.FSType != "" && l.FSType != "" && doc.FSType != l.FSType {
		return nil, &FieldError{
			Key: FSTypeKey, Value: l.FSType, Why: "differs from fsType " + doc.FSType + " of " + v1alpha1.FilesystemKey,
			Fix: "give one of the two, or the same in both",
		}
	}
	if doc.FSType == "" {
		doc.FSType = fs.FSType
	}
	return doc, nil
}

// checkFilesystem refuses a filesystem the protocol cannot carry, and mkfs options outside
// of the allow-list: they come from claim authors and reach a root process. The node
// checks again.
func checkFilesystem(fs *v1alpha1.Filesystem, kind transport.Kind) error {
	allowed := []string{v1alpha1.FSTypeExt4, v1alpha1.FSTypeXFS}
	if kind == transport.NFS {
		allowed = []string{v1alpha1.FSTypeNFS}
	}
	if err := oneOf(v1alpha1.FilesystemKey, "fsType", fs.FSType, allowed...); err != nil {
		return err
	}
	if fs.MkfsOptions == nil || len(*fs.MkfsOptions) == 0 {
		return nil
	}
	if kind == transport.NFS {
		return &FieldError{Key: v1alpha1.FilesystemKey, Path: "mkfsOptions", Why: "does not apply to nfs", Fix: "remove it"}
	}
	if err := filesystem.CheckOptions(fs.FSType, *fs.MkfsOptions); err != nil {
		return &FieldError{Key: v1alpha1.FilesystemKey, Path: "mkfsOptions", Value: strings.Join(*fs.MkfsOptions, " "), Why: err.Error()}
	}
	return nil
}
