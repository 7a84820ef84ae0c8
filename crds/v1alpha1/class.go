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

	// +required
	Spec PillarStorageClassSpec `json:"spec"`
	// +optional
	Status PillarStorageClassStatus `json:"status,omitempty"`
}

// PillarStorageClassSpec is the class as the user wants it.
type PillarStorageClassSpec struct {
	// +kubebuilder:validation:Enum=pillar-csi.bhyoo.com;files.pillar-csi.bhyoo.com
	// +kubebuilder:default=pillar-csi.bhyoo.com
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="csiDriver is immutable"
	// +optional
	CSIDriver string `json:"csiDriver,omitempty"`
	// Name of the PillarStore.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="storeRef is immutable"
	StoreRef string `json:"storeRef"`
	// Name of the PillarProtocol.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="protocolRef is immutable"
	ProtocolRef string `json:"protocolRef"`
	// The StorageClass to generate.
	// +kubebuilder:default={}
	// +optional
	StorageClass StorageClassTemplate `json:"storageClass,omitempty"`
	// +optional
	Filesystem *Filesystem `json:"filesystem,omitempty"`
	// +optional
	Overrides *Overrides `json:"overrides,omitempty"`
	// Attach through the backend device where pod and volume share a node.
	// +kubebuilder:default=false
	// +optional
	LocalAttach bool `json:"localAttach"`
}

// StorageClassTemplate shapes the generated StorageClass.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) == has(oldSelf.name)",message="storageClass.name is immutable"
type StorageClassTemplate struct {
	// Absent is the name of the PillarStorageClass.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="storageClass.name is immutable"
	// +optional
	Name string `json:"name,omitempty"`
	// +kubebuilder:validation:Enum=Delete;Retain
	// +kubebuilder:default=Delete
	// +optional
	ReclaimPolicy string `json:"reclaimPolicy,omitempty"`
	// +kubebuilder:validation:Enum=Immediate;WaitForFirstConsumer
	// +kubebuilder:default=Immediate
	// +optional
	VolumeBindingMode string `json:"volumeBindingMode,omitempty"`
	// Absent is true, except for files.
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
	// +kubebuilder:validation:Enum=ext4;xfs;nfs
	// +optional
	FSType string `json:"fsType,omitempty"`
	// +optional
	MkfsOptions *[]string `json:"mkfsOptions,omitempty"`
	// +optional
	MountOptions *[]string `json:"mountOptions,omitempty"`
	// +optional
	PeriodicTrim *bool `json:"periodicTrim,omitempty"`
}

// Overrides are layer 2 of the settings: store and protocol are layer 1.
type Overrides struct {
	// +optional
	Backend *BackendOverrides `json:"backend,omitempty"`
	// +optional
	Protocol *ProtocolOverrides `json:"protocol,omitempty"`
}

// BackendOverrides is a union: exactly one of its members is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.zfs), has(self.lvm), has(self.directory)].filter(x, x).size() == 1",message="exactly one backend member must be set: zfs, lvm, directory"
type BackendOverrides struct {
	// +optional
	ZFS *ZFSOverrides `json:"zfs,omitempty"`
	// +optional
	LVM *LVMOverrides `json:"lvm,omitempty"`
	// +optional
	Directory *Nothing `json:"directory,omitempty"`
}

// ZFSOverrides are merged key by key.
type ZFSOverrides struct {
	// +optional
	Properties map[string]string `json:"properties,omitempty"`
}

// LVMOverrides replace the store's settings.
type LVMOverrides struct {
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
	// +optional
	NVMeOFTCP *NVMeTunables `json:"nvmeofTcp,omitempty"`
	// +optional
	ISCSI *ISCSITunables `json:"iscsi,omitempty"`
	// +optional
	NFS *Nothing `json:"nfs,omitempty"`
}

// PillarStorageClassStatus says what was generated.
type PillarStorageClassStatus struct {
	// +optional
	StorageClassName string `json:"storageClassName,omitempty"`
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
