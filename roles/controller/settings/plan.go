// Package settings turns what users wrote into what one volume gets. It is pure: callers
// read the objects, Resolve decides.
//
//	layer 1  PillarStore backend, PillarProtocol protocol, ext4
//	layer 2  PillarStorageClass overrides and filesystem, or documents of a hand-written class
//	layer 3  documents in the claim's annotations
//
// A higher layer replaces a lower one field by field, zfs.properties key by key, and lists
// as a whole (api.md 3). The result is recorded once, in spec.resolved, and replayed.
package settings

import (
	"fmt"
	"slices"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// Layers are everything a volume's settings come from.
type Layers struct {
	Driver string // CSI identity that was asked; empty is v1alpha1.DriverName
	Name   string // CSI name of the volume

	StoreName string // of the PillarStore, for messages
	Store     v1alpha1.PillarStoreSpec
	Protocol  v1alpha1.PillarProtocolSpec

	Class       *v1alpha1.PillarStorageClassSpec // nil: the StorageClass is hand-written
	ClassDocs   Documents                        // of a hand-written StorageClass
	LocalAttach bool                             // of a hand-written StorageClass
	VolumeDocs  Documents                        // of the claim
	Import      *Import                          // of the claim

	Bad Problems // of parameters and annotations: what they say otherwise is in here

	FSType     string   // the capability's fs_type: csi.storage.k8s.io/fstype of the class
	MountFlags []string // the capability's: mountOptions of the class
	Block      bool     // volumeMode: Block
}

// Plan is the effective configuration of one volume.
type Plan struct {
	Backend  storage.BackendType
	Protocol transport.Kind
	Volume   storage.VolumeID
	Resolved v1alpha1.Resolved
}

// Resolve merges the layers. Its errors are Problems, or storage.ErrPrecondition for a
// backend and a protocol that do not fit together.
func Resolve(l Layers) (Plan, error) {
	if l.Class != nil && driver(l.Class.CSIDriver) != l.driver() {
		return Plan{}, Problems{{
			Key: v1alpha1.StorageClassKey, Value: driver(l.Class.CSIDriver),
			Why: "names a class of another driver than " + l.driver(), Fix: "use a StorageClass that class generated",
		}}
	}
	if err := Compatible(l.driver(), l.Store.Backend, l.Protocol.Protocol); err != nil {
		return Plan{}, err
	}
	p := Plan{
		Backend:  BackendType(l.Store.Backend),
		Protocol: ProtocolKind(l.Protocol.Protocol),
		Volume:   storage.VolumeID{Pool: Pool(l.Store.Backend), Name: l.Name},
	}
	bad, more := l.Bad, Problems(nil)
	collect := func() { bad = append(bad, more...) }
	p.Resolved.Backend, more = l.backend()
	collect()
	p.Resolved.Protocol, more = l.protocol()
	collect()
	p.Resolved.Filesystem, more = l.filesystem()
	collect()
	p.Resolved.LocalAttach, more = l.localAttach()
	collect()
	if l.Import == nil {
		more = checkName(p.Backend, parentDataset(l.Store.Backend), p.Protocol, p.Volume)
		collect()
	}
	if !importRefused(l.Bad) {
		more = l.checkImport()
		collect()
	}
	if len(bad) == 0 {
		bad = notYet(l)
	}
	return p, bad.err()
}

// Unresolved is what Resolve would answer about a claim where the parameters of its class are
// refused, so that nobody can tell its store and protocol.
func Unresolved(l Layers) error {
	return slices.Concat(l.Bad, checkDocuments(l.ClassDocs), checkDocuments(l.VolumeDocs)).err()
}

func parentDataset(b v1alpha1.Backend) string {
	if b.ZFS == nil {
		return ""
	}
	return b.ZFS.ParentDataset
}

// driver is the identity a class belongs to; the schema's default is not there yet when
// the object was never stored.
func driver(name string) string {
	if name == "" {
		return v1alpha1.DriverName
	}
	return name
}

func (l Layers) driver() string { return driver(l.Driver) }

// files tells whether the file identity was asked: it adopts and creates nothing.
func (l Layers) files() bool { return l.driver() == v1alpha1.FileDriverName }

func (l Layers) localAttach() (bool, Problems) {
	on, at := l.LocalAttach, place{key: v1alpha1.LocalAttachKey}
	if l.Class != nil {
		on, at = l.Class.LocalAttach, inClass.in("localAttach")
	}
	return on, checkLocalAttach(at, l.driver(), ProtocolKind(l.Protocol.Protocol), on)
}

// checkLocalAttach refuses what has no block device to attach, except where the file
// identity binds a directory.
func checkLocalAttach(at place, driver string, kind transport.Kind, on bool) Problems {
	if !on || kind != transport.NFS || driver == v1alpha1.FileDriverName {
		return nil
	}
	return Problems{at.problem("true", "does not apply to nfs", "set it to false")}
}

// notYet refuses what only a claim can ask for and a later version does; for the rest see
// NotYet.
func notYet(l Layers) (bad Problems) {
	why := "is not supported yet"
	if l.files() {
		bad = append(bad, &FieldError{Key: "driver", Value: l.driver(), Why: why})
	}
	if i := l.Import; i != nil {
		bad = append(bad, &FieldError{Key: i.Selector, Value: i.Source, Why: why, Fix: "remove the annotation for a new volume"})
	}
	return bad
}

// BackendType is the token a store's backend member stands for; empty if none is set.
func BackendType(b v1alpha1.Backend) storage.BackendType {
	switch {
	case b.ZFS != nil && b.ZFS.VolumeType == v1alpha1.ZFSVolumeTypeDataset:
		return storage.ZFSDataset
	case b.ZFS != nil:
		return storage.ZFSZvol
	case b.LVM != nil:
		return storage.LVMLV
	case b.Directory != nil:
		return storage.Directory
	}
	return ""
}

// Pool is the pool part of agent volume IDs in that backend.
func Pool(b v1alpha1.Backend) string {
	switch {
	case b.ZFS != nil:
		return b.ZFS.Pool
	case b.LVM != nil:
		return b.LVM.VolumeGroup
	case b.Directory != nil:
		return b.Directory.LogicalPool
	}
	return ""
}

// ProtocolKind is the token a protocol member stands for; empty if none is set.
func ProtocolKind(p v1alpha1.Protocol) transport.Kind {
	switch {
	case p.NVMeOFTCP != nil:
		return transport.NVMeTCP
	case p.ISCSI != nil:
		return transport.ISCSI
	case p.NFS != nil:
		return transport.NFS
	}
	return ""
}

// Compatible is nil if the driver offers volumes of the backend over the protocol, else
// storage.ErrPrecondition (api.md 1): block backends pair with block protocols, datasets
// with NFS, and directories only with the file identity.
func Compatible(driver string, b v1alpha1.Backend, p v1alpha1.Protocol) error {
	backend, kind := BackendType(b), ProtocolKind(p)
	files := driver == v1alpha1.FileDriverName
	fits := false
	switch backend {
	case storage.ZFSZvol, storage.LVMLV:
		fits = !files && (kind == transport.NVMeTCP || kind == transport.ISCSI)
	case storage.ZFSDataset:
		fits = kind == transport.NFS
	case storage.Directory: // adopted, never made
		fits = files && kind == transport.NFS
	}
	if fits {
		return nil
	}
	of := ""
	if files || backend == storage.Directory {
		of = " for driver " + driver
	}
	return fmt.Errorf("backend %s and protocol %s are incompatible%s: %w", backend, kind, of, storage.ErrPrecondition)
}

// MaxDataTransferSize is the recorded MDTS in bytes; a record of an older version has
// none and gets the default.
func MaxDataTransferSize(p *v1alpha1.NVMeOFTCP) v1alpha1.MaxDataTransferSize {
	if p.MaxDataTransferSize == nil {
		return v1alpha1.DefaultMaxDataTransferSize
	}
	return *p.MaxDataTransferSize
}
