package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PillarStorageClass joins a store, a protocol and a filesystem, and generates a
// Kubernetes StorageClass.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=psc,path=pillarstorageclasses
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=`.spec.storeRef`
// +kubebuilder:printcolumn:name="Protocol",type=string,JSONPath=`.spec.protocolRef`
// +kubebuilder:printcolumn:name="StorageClass",type=string,JSONPath=`.status.storageClassName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PillarStorageClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The class as the user wants it.
	// +required
	Spec PillarStorageClassSpec `json:"spec"`
	// What was generated. Written by the controller only.
	// +optional
	Status PillarStorageClassStatus `json:"status,omitempty"`
}

// PillarStorageClassSpec is the class as the user wants it.
type PillarStorageClassSpec struct {
	// CSI driver of the volumes: pillar-csi.bhyoo.com (the default) makes block volumes and
	// NFS datasets, files.pillar-csi.bhyoo.com adopts existing directories and filesystems.
	// Immutable.
	// +kubebuilder:validation:Enum=pillar-csi.bhyoo.com;files.pillar-csi.bhyoo.com
	// +kubebuilder:default=pillar-csi.bhyoo.com
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="csiDriver is immutable",messageExpression="'csiDriver is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	// +optional
	CSIDriver string `json:"csiDriver,omitempty"`
	// Name of the PillarStore volumes are made in. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="storeRef is immutable",messageExpression="'storeRef is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	StoreRef string `json:"storeRef"`
	// Name of the PillarProtocol volumes are reached by. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="protocolRef is immutable",messageExpression="'protocolRef is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	ProtocolRef string `json:"protocolRef"`
	// The Kubernetes StorageClass to generate. Absent (the default): all of its defaults.
	// +kubebuilder:default={}
	// +optional
	StorageClass StorageClassTemplate `json:"storageClass,omitempty"`
	// What volumes are formatted and mounted with. Absent (the default): ext4, or nfs where
	// the protocol is NFS. A claim's annotation may replace it field by field.
	// +optional
	Filesystem *Filesystem `json:"filesystem,omitempty"`
	// Settings that replace those of store and protocol for volumes of this class. Absent
	// (the default): none.
	// +optional
	Overrides *Overrides `json:"overrides,omitempty"`
	// true attaches through the backend's own device, without the network, where pod and
	// volume share a node; false by default. Fixed for a volume when it is made.
	// +kubebuilder:default=false
	// +optional
	LocalAttach bool `json:"localAttach"`
}

// StorageClassTemplate shapes the generated StorageClass.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) == has(oldSelf.name) && (!has(self.name) || self.name == oldSelf.name)",fieldPath=".name",message="storageClass.name is immutable",messageExpression="'storageClass.name is immutable: was ' + (has(oldSelf.name) ? oldSelf.name : 'absent') + ', asked for ' + (has(self.name) ? self.name : 'absent')",reason=FieldValueForbidden
type StorageClassTemplate struct {
	// Name of the StorageClass. Absent (the default): the PillarStorageClass's own name.
	// Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +optional
	Name string `json:"name,omitempty"`
	// What becomes of a volume whose claim is deleted: Delete (the default) or Retain. A
	// change makes the StorageClass anew.
	// +kubebuilder:validation:Enum=Delete;Retain
	// +kubebuilder:default=Delete
	// +optional
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	// When a volume is made: Immediate (the default), with the claim, or
	// WaitForFirstConsumer, with its first pod. A change makes the StorageClass anew.
	// +kubebuilder:validation:Enum=Immediate;WaitForFirstConsumer
	// +kubebuilder:default=Immediate
	// +optional
	VolumeBindingMode string `json:"volumeBindingMode,omitempty"`
	// Whether claims may grow. Absent: filled in from the backend, true for all that
	// pillar-csi.bhyoo.com makes, false for files.pillar-csi.bhyoo.com, whose volumes never
	// grow.
	// +optional
	AllowVolumeExpansion *bool `json:"allowVolumeExpansion,omitempty"`
}

// The values of fsType.
const (
	FSTypeExt4 = "ext4"
	FSTypeXFS  = "xfs"
	FSTypeNFS  = "nfs"
)

// Filesystem is what a volume is formatted and mounted with. A nil list inherits, an
// empty list clears.
type Filesystem struct {
	// ext4 or xfs for block volumes, nfs for NFS. Absent: inherited, in the end ext4, or
	// nfs where the protocol is NFS.
	// +kubebuilder:validation:Enum=ext4;xfs;nfs
	// +optional
	FSType string `json:"fsType,omitempty"`
	// Options of mkfs, such as ["-L", "data"], from the allow-list of the documentation.
	// Absent: inherited; []: none. Not for NFS.
	// +optional
	MkfsOptions *[]string `json:"mkfsOptions,omitempty"`
	// Options of mount, such as ["noatime"]. Absent: inherited; []: none.
	// +optional
	MountOptions *[]string `json:"mountOptions,omitempty"`
	// Whether the node plugin trims the mounted filesystem from time to time. Absent:
	// inherited, in the end true. Not for NFS, and without effect on raw block volumes.
	// +optional
	PeriodicTrim *bool `json:"periodicTrim,omitempty"`
}

// Overrides are layer 2 of the settings: store and protocol are layer 1.
type Overrides struct {
	// Settings of the store's backend: exactly one member, the store's own.
	// +optional
	Backend *BackendOverrides `json:"backend,omitempty"`
	// Settings of the protocol: exactly one member, the protocol's own.
	// +optional
	Protocol *ProtocolOverrides `json:"protocol,omitempty"`
}

// BackendOverrides is a union: exactly one of its members is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.zfs), has(self.lvm), has(self.directory)].filter(x, x).size() == 1",message="exactly one backend member must be set: zfs, lvm, directory"
type BackendOverrides struct {
	// For a zfs store.
	// +optional
	ZFS *ZFSOverrides `json:"zfs,omitempty"`
	// For an lvm store.
	// +optional
	LVM *LVMOverrides `json:"lvm,omitempty"`
	// For a directory store, which has nothing to set: {}.
	// +optional
	Directory *Nothing `json:"directory,omitempty"`
}

// ZFSOverrides are merged key by key.
type ZFSOverrides struct {
	// ZFS properties of new volumes, added to the store's key by key.
	// +optional
	Properties map[string]string `json:"properties,omitempty"`
}

// LVMOverrides replace the store's settings.
type LVMOverrides struct {
	// linear, or thin where the store has a thinPool. Absent: the store's value.
	// +kubebuilder:validation:Enum=linear;thin
	// +optional
	ProvisioningMode string `json:"provisioningMode,omitempty"`
}

// Nothing is a member without any tunable.
type Nothing struct{}

// ProtocolOverrides is a union: exactly one of its members is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.nvmeofTcp), has(self.iscsi), has(self.nfs)].filter(x, x).size() == 1",message="exactly one protocol member must be set: nvmeofTcp, iscsi, nfs"
type ProtocolOverrides struct {
	// For NVMe over TCP.
	// +optional
	NVMeOFTCP *NVMeTunables `json:"nvmeofTcp,omitempty"`
	// For iSCSI.
	// +optional
	ISCSI *ISCSITunables `json:"iscsi,omitempty"`
	// For NFS, which has nothing to set: {}.
	// +optional
	NFS *Nothing `json:"nfs,omitempty"`
}

// PillarStorageClassStatus says what was generated.
type PillarStorageClassStatus struct {
	// Name of the generated StorageClass; absent until it was made.
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`
	// StoreReady, ProtocolValid, Compatible, StorageClassCreated and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PillarStorageClassList is a list of PillarStorageClasses.
//
// +kubebuilder:object:root=true
type PillarStorageClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PillarStorageClass `json:"items"`
}
