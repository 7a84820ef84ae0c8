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

	// Where the store is and the base settings of its volumes.
	// +required
	Spec PillarStoreSpec `json:"spec"`
	// The pool as its agent reports it. Written by the controller only.
	// +optional
	Status PillarStoreStatus `json:"status,omitempty"`
}

// PillarStoreSpec places the store and gives the base settings of its volumes.
type PillarStoreSpec struct {
	// Name of the PillarAgent that serves the pool. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="agentRef is immutable",messageExpression="'agentRef is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	AgentRef string `json:"agentRef"`
	// The pool and how volumes are made in it: exactly one of zfs, lvm and directory. Which
	// one, is immutable. Existing volumes keep the settings they were made with.
	// +kubebuilder:validation:XValidation:rule="has(self.zfs) == has(oldSelf.zfs) && has(self.lvm) == has(oldSelf.lvm) && has(self.directory) == has(oldSelf.directory)",message="the backend member is immutable",messageExpression="'the backend member is immutable: was ' + (has(oldSelf.zfs) ? 'zfs' : has(oldSelf.lvm) ? 'lvm' : 'directory') + ', asked for ' + (has(self.zfs) ? 'zfs' : has(self.lvm) ? 'lvm' : has(self.directory) ? 'directory' : 'none') + '; make another PillarStore instead'",reason=FieldValueForbidden
	Backend Backend `json:"backend"`
}

// Backend is a union: exactly one of its members is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.zfs), has(self.lvm), has(self.directory)].filter(x, x).size() == 1",message="exactly one backend member must be set: zfs, lvm, directory"
type Backend struct {
	// Zvols or datasets of a ZFS pool.
	// +optional
	ZFS *ZFSBackend `json:"zfs,omitempty"`
	// Logical volumes of a volume group.
	// +optional
	LVM *LVMBackend `json:"lvm,omitempty"`
	// Existing directories below one root, for adoption by the file driver.
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
	// What a volume is: zvol (the default), a block device, or dataset, a filesystem served
	// over NFS. Immutable.
	// +kubebuilder:validation:Enum=zvol;dataset
	// +kubebuilder:default=zvol
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="zfs.volumeType is immutable",messageExpression="'zfs.volumeType is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
	// Name of the ZFS pool, as zpool(8) allows. Immutable; pillar never makes pools.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z][A-Za-z0-9_.:-]*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="zfs.pool is immutable",messageExpression="'zfs.pool is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	Pool string `json:"pool"`
	// Dataset, relative to the pool, below which volumes are made. Must equal the value of
	// the agent's configuration, else the store is not Ready. Absent (the default): the
	// pool's root.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_.:][A-Za-z0-9_.:-]*(/[A-Za-z0-9_.:][A-Za-z0-9_.:-]*)*)?$`
	// +optional
	ParentDataset string `json:"parentDataset,omitempty"`
	// ZFS properties set on every volume created, such as compression: lz4. Absent (the
	// default): what the pool inherits. A class or a claim adds to them key by key.
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
	// Name of the volume group, as lvm(8) allows. Immutable; pillar never makes volume
	// groups.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+_.][A-Za-z0-9+_.-]*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="lvm.volumeGroup is immutable",messageExpression="'lvm.volumeGroup is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	VolumeGroup string `json:"volumeGroup"`
	// Name of the thin pool in the volume group. Must equal the value of the agent's
	// configuration, else the store is not Ready. Absent (the default): none.
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9+_.][A-Za-z0-9+_.-]*)?$`
	// +optional
	ThinPool string `json:"thinPool,omitempty"`
	// How logical volumes are made: linear (the default), fully allocated, or thin, which
	// needs thinPool.
	// +kubebuilder:validation:Enum=linear;thin
	// +kubebuilder:default=linear
	// +optional
	ProvisioningMode string `json:"provisioningMode,omitempty"`
}

// DirectoryBackend adopts directories below one root of the storage node.
type DirectoryBackend struct {
	// Name of the entry in the agent's configuration; it stands where a pool's name stands
	// in volume IDs. Immutable.
	// +kubebuilder:validation:Pattern=`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="directory.logicalPool is immutable",messageExpression="'directory.logicalPool is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	LogicalPool string `json:"logicalPool"`
	// Absolute path of the root on the storage node. Must equal the value of the agent's
	// configuration, else the store is not Ready.
	// +kubebuilder:validation:Pattern=`^/`
	HostRoot string `json:"hostRoot"`
}

// PillarStoreStatus is the pool as its agent reports it.
type PillarStoreStatus struct {
	// Space in the pool. Absent while the pool is not discovered.
	// +optional
	Capacity *StoreCapacity `json:"capacity,omitempty"`
	// AgentReady, PoolDiscovered, BackendSupported and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// StoreCapacity is copied from the agent's discovered pool; used = total - available.
type StoreCapacity struct {
	// Size of the pool in bytes.
	// +optional
	Total *resource.Quantity `json:"total,omitempty"`
	// Bytes new volumes may use.
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
	// Total minus available in bytes, never below zero.
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
