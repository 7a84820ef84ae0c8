package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/storage/filesystem"
	"github.com/pillar-csi/pillar/transport"
)

// traced are filesystem settings and where each of them was written last.
type traced struct {
	v1alpha1.Filesystem
	fsType, mkfs, mount, trim place
}

// filesystem is the built-in filesystem under those of class and claim; nil for raw
// block volumes, where a class's document is ignored and a claim's is refused.
func (l Layers) filesystem() (*v1alpha1.Filesystem, Problems) {
	kind := ProtocolKind(l.Protocol.Protocol)
	if l.Block {
		return nil, l.rawBlock(kind)
	}
	fs, bad := l.classFilesystem()
	if doc := l.VolumeDocs.Filesystem; doc != "" {
		volume, more := decodeFilesystem(v1alpha1.FilesystemKey, doc)
		bad = append(bad, more...)
		fs.apply(place{key: v1alpha1.FilesystemKey}, volume)
	}
	if fs.MountOptions == nil {
		bad = append(bad, l.checkMount(inMountOps, l.MountFlags)...)
	} else {
		bad = append(bad, l.checkMount(fs.mount, *fs.MountOptions)...)
	}
	return &fs.Filesystem, append(bad, fs.check(kind)...)
}

func (l Layers) rawBlock(kind transport.Kind) (bad Problems) {
	if kind == transport.NFS {
		bad = append(bad, &FieldError{Key: "volume_capabilities", Why: "raw block volumes are not supported over nfs", Fix: "use volumeMode: Filesystem"})
	}
	if l.VolumeDocs.Filesystem != "" {
		bad = append(bad, &FieldError{Key: v1alpha1.FilesystemKey, Why: "does not apply to volumeMode: Block", Fix: "remove the annotation"})
	}
	return bad
}

// classFilesystem is layers 1 and 2. The mount options of a PillarStorageClass are left
// out: its StorageClass carries them to the node as mount flags. So is the fs_type beside
// a PillarStorageClass: it is only a copy (api.md 3.3).
func (l Layers) classFilesystem() (*traced, Problems) {
	fs := &traced{Filesystem: v1alpha1.Filesystem{FSType: v1alpha1.FSTypeExt4}}
	if l.Protocol.Protocol.NFS != nil {
		fs.FSType = v1alpha1.FSTypeNFS
	}
	if l.Class != nil {
		if own := l.Class.Filesystem.DeepCopy(); own != nil {
			own.MountOptions = nil
			fs.apply(inClass.in("filesystem."), own)
		}
		return fs, nil
	}
	parameter := place{key: FSTypeKey}
	var bad Problems
	switch known := filesystemFields["fsType"]; {
	case l.FSType == "":
	case !slices.Contains(known.choices, l.FSType): // even if a higher layer has another
		bad = append(bad, parameter.problem(l.FSType, "is not supported", "use "+known.wants()))
	default:
		fs.FSType, fs.fsType = l.FSType, parameter
	}
	if l.ClassDocs.Filesystem == "" {
		return fs, bad
	}
	doc, more := decodeFilesystem(v1alpha1.FilesystemKey, l.ClassDocs.Filesystem)
	bad = append(bad, more...)
	if doc.FSType != "" && l.FSType != "" && doc.FSType != l.FSType {
		bad = append(bad, parameter.problem(l.FSType, "differs from fsType "+doc.FSType+" of "+v1alpha1.FilesystemKey, "give one of the two, or the same in both"))
	}
	fs.apply(place{key: v1alpha1.FilesystemKey}, doc)
	return fs, bad
}

// apply lays a higher layer over fs.
func (fs *traced) apply(at place, over *v1alpha1.Filesystem) {
	if over.FSType != "" {
		fs.FSType, fs.fsType = over.FSType, at.in("fsType")
	}
	if over.MkfsOptions != nil {
		fs.MkfsOptions, fs.mkfs = over.MkfsOptions, at.in("mkfsOptions")
	}
	if over.MountOptions != nil {
		fs.MountOptions, fs.mount = over.MountOptions, at.in("mountOptions")
	}
	if over.PeriodicTrim != nil {
		fs.PeriodicTrim, fs.trim = over.PeriodicTrim, at.in("periodicTrim")
	}
}

// check refuses a filesystem the protocol cannot carry, and mkfs options outside of the
// allow-list: they come from claim authors and reach a root process. The node checks
// again. An empty kind is a protocol nobody knows yet.
func (fs *traced) check(kind transport.Kind) (bad Problems) {
	fits := []string{v1alpha1.FSTypeExt4, v1alpha1.FSTypeXFS}
	switch kind {
	case transport.NFS:
		fits = []string{v1alpha1.FSTypeNFS}
	case "":
		fits = append(fits, v1alpha1.FSTypeNFS)
	}
	if !slices.Contains(fits, fs.FSType) {
		on := ""
		if kind != "" {
			on = " over " + string(kind)
		}
		bad = append(bad, fs.fsType.problem(fs.FSType, "is not supported"+on, "use "+strings.Join(fits, " or ")))
	}
	if kind == transport.NFS && fs.PeriodicTrim != nil && *fs.PeriodicTrim {
		bad = append(bad, fs.trim.problem("true", "does not apply to nfs", "remove it"))
	}
	if fs.MkfsOptions == nil || len(*fs.MkfsOptions) == 0 {
		return bad
	}
	given := strings.Join(*fs.MkfsOptions, " ")
	if kind == transport.NFS {
		return append(bad, fs.mkfs.problem(given, "does not apply to nfs", "remove it"))
	}
	if fs.FSType == v1alpha1.FSTypeExt4 || fs.FSType == v1alpha1.FSTypeXFS {
		if err := filesystem.CheckOptions(fs.FSType, *fs.MkfsOptions); err != nil {
			bad = append(bad, fs.mkfs.problem("", why(err, storage.ErrInvalid), ""))
		}
	}
	return bad
}

func (l Layers) checkMount(at place, options []string) Problems {
	local := l.LocalAttach
	if l.Class != nil {
		local = l.Class.LocalAttach
	}
	return checkMount(at, options, ProtocolKind(l.Protocol.Protocol), l.files() && local)
}

// checkMount refuses mount options by what is mounted: a filesystem of a volume, NFS, or
// a directory of this very machine.
func checkMount(at place, options []string, kind transport.Kind, bind bool) (bad Problems) {
	check := filesystem.CheckMountOptions
	switch {
	case bind:
		check = checkBindOptions
	case kind == transport.NFS:
		check = checkNFSOptions
	}
	for i, option := range options {
		if err := check([]string{option}); err != nil {
			bad = append(bad, at.in(fmt.Sprintf("[%d]", i)).problem("", why(err, storage.ErrInvalid), "remove it"))
		}
	}
	return bad
}
