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

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/storage"
	"github.com/pillar-csi/pillar/transport"
)

// Layers are everything a volume's settings come from.
type Layers struct {
	Driver string // CSI identity that was asked; empty is v1alpha1.DriverName
	Name   string // CSI name of the volume

	Store    v1alpha1.PillarStoreSpec
	Protocol v1alpha1.PillarProtocolSpec

	Class       *v1alpha1.PillarStorageClassSpec // nil: the StorageClass is hand-written
	ClassDocs   Documents                        // of a hand-written StorageClass
	LocalAttach bool                             // of a hand-written StorageClass
	VolumeDocs  Documents                        // of the claim
	Import      *Import                          // of the claim

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
	var err error
	if p.Resolved.Backend, err = l.backend(); err != nil {
		return Plan{}, err
	}
	if p.Resolved.Protocol, err = l.protocol(); err != nil {
		return Plan{}, err
	}
	if p.Resolved.Filesystem, err = l.filesystem(); err != nil {
		return Plan{}, err
	}
	p.Resolved.LocalAttach = l.localAttach()
	var bad Problems
	if l.Import == nil {
		bad = checkName(p.Backend, parentDataset(l.Store.Backend), p.Protocol, p.Volume)
	}
	if e := l.checkImport(); e != nil {
		bad = append(bad, e)
	}
	if len(bad) > 0 {
		return Plan{}, bad
	}
	return p, notYet(p.Resolved)
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

func (l Layers) localAttach() bool {
	if l.Class != nil {
		return l.Class.LocalAttach
	}
	return l.LocalAttach
}

// notYet refuses what a later version does: recorded now, it would be promised and not kept.
func notYet(r v1alpha1.Resolved) error {
	if r.LocalAttach {
		return &FieldError{Key: "localAttach", Value: "true", Why: "is not supported yet", Fix: "leave it false"}
	}
	if i := r.Protocol.ISCSI; i != nil && i.Auth != nil && i.Auth.Method != "" && i.Auth.Method != v1alpha1.AuthNone {
		return &FieldError{Key: "PillarProtocol", Path: "iscsi.auth.method", Value: i.Auth.Method, Why: "is not supported yet", Fix: "use None"}
	}
	return nil
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
