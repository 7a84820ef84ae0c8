package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PillarStore is one pool on one agent.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pst
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.agentRef`
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.capacity.available`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PillarStore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PillarStoreSpec `json:"spec"`
	// +optional
	Status PillarStoreStatus `json:"status,omitempty"`
}

// PillarStoreSpec places the store and gives the base settings of its volumes.
type PillarStoreSpec struct {
	// Name of the PillarAgent.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="agentRef is immutable"
	AgentRef string `json:"agentRef"`
	// +kubebuilder:validation:XValidation:rule="has(self.zfs) == has(oldSelf.zfs) && has(self.lvm) == has(oldSelf.lvm) && has(self.directory) == has(oldSelf.directory)",message="the backend member is immutable"
	Backend Backend `json:"backend"`
}

// Backend is a union: exactly one of its members is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.zfs), has(self.lvm), has(self.directory)].filter(x, x).size() == 1",message="exactly one backend member must be set: zfs, lvm, directory"
type Backend struct {
	// +optional
	ZFS *ZFSBackend `json:"zfs,omitempty"`
	// +optional
	LVM *LVMBackend `json:"lvm,omitempty"`
	// +optional
	Directory *DirectoryBackend `json:"directory,omitempty"`
}

// The values of zfs.volumeType.
const (
	ZFSVolumeTypeZvol    = "zvol"
	ZFSVolumeTypeDataset = "dataset"
)

// ZFSBackend makes zvols or datasets in a ZFS pool.
type ZFSBackend struct {
	// +kubebuilder:validation:Enum=zvol;dataset
	// +kubebuilder:default=zvol
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="zfs.volumeType is immutable"
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="zfs.pool is immutable"
	Pool string `json:"pool"`
	// Must equal the value of the agent's configuration; absent means the pool's root.
	// +optional
	ParentDataset string `json:"parentDataset,omitempty"`
	// ZFS properties of every volume created.
	// +optional
	Properties map[string]string `json:"properties,omitempty"`
}

// The values of lvm.provisioningMode.
const (
	ProvisioningLinear = "linear"
	ProvisioningThin   = "thin"
)

// LVMBackend makes logical volumes in a volume group.
type LVMBackend struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="lvm.volumeGroup is immutable"
	VolumeGroup string `json:"volumeGroup"`
	// Must equal the value of the agent's configuration; absent means none.
	// +optional
	ThinPool string `json:"thinPool,omitempty"`
	// +kubebuilder:validation:Enum=linear;thin
	// +kubebuilder:default=linear
	// +optional
	ProvisioningMode string `json:"provisioningMode,omitempty"`
}

// DirectoryBackend adopts directories below one root of the storage node.
type DirectoryBackend struct {
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="directory.logicalPool is immutable"
	LogicalPool string `json:"logicalPool"`
	// Must equal the value of the agent's configuration.
	// +kubebuilder:validation:Pattern=`^/`
	HostRoot string `json:"hostRoot"`
}

// PillarStoreStatus is the pool as its agent reports it.
type PillarStoreStatus struct {
	// Absent while the pool is not discovered.
	// +optional
	Capacity *StoreCapacity `json:"capacity,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StoreCapacity is copied from the agent's discovered pool; used = total - available.
type StoreCapacity struct {
	// +optional
	Total *resource.Quantity `json:"total,omitempty"`
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
	// +optional
	Used *resource.Quantity `json:"used,omitempty"`
}

// PillarStoreList is a list of PillarStores.
//
// +kubebuilder:object:root=true
type PillarStoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PillarStore `json:"items"`
}
