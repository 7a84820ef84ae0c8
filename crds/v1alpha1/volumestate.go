package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PillarVolumeState is the ledger of one CSI volume lifecycle. It is made before anything
// exists on a storage node and removed last; its UID is the fencing identity. Only the
// controller writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pvst
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.agentRef`
// +kubebuilder:printcolumn:name="Backend",type=string,JSONPath=`.spec.backendType`
// +kubebuilder:printcolumn:name="Protocol",type=string,JSONPath=`.spec.protocolType`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.lvmSource.logicalVolumeUUID`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PillarVolumeState struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec PillarVolumeStateSpec `json:"spec"`
	// +optional
	Status PillarVolumeStateStatus `json:"status,omitempty"`
}

// PillarVolumeStateSpec is written once, at the first CreateVolume.
//
// +kubebuilder:validation:XValidation:rule="[has(self.filesystemAdoption), has(self.importedFrom) && self.importedFrom != \"\", has(self.lvmSource)].filter(x, x).size() <= 1",message="filesystemAdoption, importedFrom and lvmSource exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.recovery) || !(has(self.filesystemAdoption) || (has(self.importedFrom) && self.importedFrom != \"\") || has(self.lvmSource))",message="recovery excludes filesystemAdoption, importedFrom and lvmSource"
// +kubebuilder:validation:XValidation:rule="has(self.filesystemAdoption) == has(oldSelf.filesystemAdoption)",message="filesystemAdoption cannot be added or removed"
// +kubebuilder:validation:XValidation:rule="has(self.lvmSource) == has(oldSelf.lvmSource)",message="lvmSource cannot be added or removed"
// +kubebuilder:validation:XValidation:rule="has(self.recovery) == has(oldSelf.recovery)",message="recovery cannot be added or removed"
type PillarVolumeStateSpec struct {
	// CSI volume ID: <agent>/<protocol>/<backend>/<agent volume ID>.
	// +kubebuilder:validation:MinLength=1
	VolumeID string `json:"volumeID"`
	// <pool>/<name>.
	// +kubebuilder:validation:MinLength=1
	AgentVolumeID string `json:"agentVolumeID"`
	// Name of the PillarAgent.
	// +kubebuilder:validation:MinLength=1
	AgentRef string `json:"agentRef"`
	// +kubebuilder:validation:MinLength=1
	BackendType string `json:"backendType"`
	// +kubebuilder:validation:MinLength=1
	ProtocolType string `json:"protocolType"`
	// Bytes asked for by the first attempt.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CapacityBytes int64 `json:"capacityBytes"`
	// Claim the volume was made for. Never rewritten.
	// +optional
	ClaimRef *ClaimRef `json:"claimRef,omitempty"`
	// Full source dataset of an imported zvol.
	// +optional
	ImportedFrom string `json:"importedFrom,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="filesystemAdoption is immutable"
	// +optional
	FilesystemAdoption *FilesystemAdoption `json:"filesystemAdoption,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="lvmSource is immutable"
	// +optional
	LVMSource *LVMSource `json:"lvmSource,omitempty"`
	// Effective settings, resolved once and replayed by every retry.
	// +optional
	Resolved *Resolved `json:"resolved,omitempty"`
	// +optional
	Recovery *Recovery `json:"recovery,omitempty"`
}

// ClaimRef identifies a PersistentVolumeClaim.
type ClaimRef struct {
	// +kubebuilder:validation:MinLength=1
	UID string `json:"uid"`
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
}

// FilesystemAdoption pins the identity of an adopted directory or ZFS filesystem.
//
// +kubebuilder:validation:XValidation:rule="self.kind != 'directory' || (self.filesystemType in ['ext4', 'xfs'] && has(self.filesystemID) && has(self.inode) && has(self.projectID) && !has(self.hostPath))",message="directory needs ext4 or xfs, filesystemID, inode and projectID, and no hostPath"
// +kubebuilder:validation:XValidation:rule="self.kind != 'zfs-dataset' || (self.filesystemType == 'zfs' && !has(self.filesystemID) && !has(self.inode) && !has(self.projectID))",message="zfs-dataset needs zfs, and no filesystemID, inode or projectID"
type FilesystemAdoption struct {
	// +kubebuilder:validation:Enum=directory;zfs-dataset
	Kind string `json:"kind"`
	// +kubebuilder:validation:MinLength=1
	CanonicalSource string `json:"canonicalSource"`
	// +kubebuilder:validation:MinLength=1
	ResourceID string `json:"resourceID"`
	// +optional
	HostPath string `json:"hostPath,omitempty"`
	// +kubebuilder:validation:Enum=ext4;xfs;zfs
	FilesystemType string `json:"filesystemType"`
	// +optional
	FilesystemID string `json:"filesystemID,omitempty"`
	// Decimal, fits uint64.
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,19}$`
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="size(self) < 20 || self <= '18446744073709551615'",message="inode must fit 64 bits"
	// +optional
	Inode string `json:"inode,omitempty"`
	// +kubebuilder:validation:Minimum=1
	// +optional
	ProjectID *int64 `json:"projectID,omitempty"`
}

// LVMUUID is an LVM identifier as lvs(8) prints it.
//
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]{6}(-[A-Za-z0-9]{4}){5}-[A-Za-z0-9]{6}$`
type LVMUUID string

// LVMSource pins the identity and policy of an adopted logical volume.
type LVMSource struct {
	// +kubebuilder:validation:MinLength=1
	VolumeGroup string `json:"volumeGroup"`
	// +kubebuilder:validation:MinLength=1
	LogicalVolume     string  `json:"logicalVolume"`
	VolumeGroupUUID   LVMUUID `json:"volumeGroupUUID"`
	LogicalVolumeUUID LVMUUID `json:"logicalVolumeUUID"`
	PreserveOriginal  bool    `json:"preserveOriginal"`
}

// Resolved is the effective configuration of a volume.
type Resolved struct {
	Backend  Backend  `json:"backend"`
	Protocol Protocol `json:"protocol"`
	// Absent for raw block volumes. Its mountOptions are present only where they are not
	// the class's own list, which reaches the node as the capability's mount flags.
	// +optional
	Filesystem *Filesystem `json:"filesystem,omitempty"`
	// +optional
	LocalAttach bool `json:"localAttach,omitempty"`
}

// Recovery is the intent of an ownership transfer after metadata loss.
//
// +kubebuilder:validation:XValidation:rule="self.oldVolumeUID == oldSelf.oldVolumeUID && self.oldGeneration == oldSelf.oldGeneration && self.source == oldSelf.source && self.newGeneration == oldSelf.newGeneration",message="oldVolumeUID, oldGeneration, source and newGeneration are immutable"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.newVolumeUID) || (has(self.newVolumeUID) && self.newVolumeUID == oldSelf.newVolumeUID)",message="newVolumeUID is written once"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.authorizationDigest) || (has(self.authorizationDigest) && self.authorizationDigest == oldSelf.authorizationDigest)",message="authorizationDigest is written once"
type Recovery struct {
	// +kubebuilder:validation:MinLength=1
	OldVolumeUID string `json:"oldVolumeUID"`
	// +kubebuilder:validation:Minimum=0
	OldGeneration int64     `json:"oldGeneration"`
	Source        LVMSource `json:"source"`
	// +kubebuilder:validation:Minimum=0
	NewGeneration int64 `json:"newGeneration"`
	// Must equal the object's own UID; the controller checks it, because CEL cannot see
	// metadata.uid.
	// +kubebuilder:validation:MinLength=1
	// +optional
	NewVolumeUID string `json:"newVolumeUID,omitempty"`
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +optional
	AuthorizationDigest string `json:"authorizationDigest,omitempty"`
	// +optional
	Authorization []byte `json:"authorization,omitempty"`
}

// Phase is how far a volume got.
//
// +kubebuilder:validation:Enum=Provisioning;CreatePartial;Ready;ControllerPublished;NodeStagePartial;NodeStaged;NodePublished;RecoveryPending
type Phase string

// The phases. The controller writes the first four; the others read as PhaseReady.
const (
	PhaseProvisioning    Phase = "Provisioning"
	PhaseCreatePartial   Phase = "CreatePartial"
	PhaseReady           Phase = "Ready"
	PhaseRecoveryPending Phase = "RecoveryPending"

	PhaseControllerPublished Phase = "ControllerPublished"
	PhaseNodeStagePartial    Phase = "NodeStagePartial"
	PhaseNodeStaged          Phase = "NodeStaged"
	PhaseNodePublished       Phase = "NodePublished"
)

// PillarVolumeStateStatus is the moving part of the ledger. Every write is a
// compare-and-swap.
type PillarVolumeStateStatus struct {
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Set in partial phases.
	// +optional
	PartialFailure *PartialFailure `json:"partialFailure,omitempty"`
	// Device the agent created; present from CreatePartial until Ready.
	// +optional
	BackendDevicePath string `json:"backendDevicePath,omitempty"`
	// Actual size the agent last reported.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CapacityBytes int64 `json:"capacityBytes,omitempty"`
	// The agent durably took ownership of an imported or adopted resource.
	// +optional
	ImportAcquired bool `json:"importAcquired,omitempty"`
	// As last exported.
	// +optional
	ExportInfo *ExportInfo `json:"exportInfo,omitempty"`
	// +listType=map
	// +listMapKey=nodeID
	// +optional
	PublishedNodes []PublishedNode `json:"publishedNodes,omitempty"`
	// The desired export; the only source for rebuilding it.
	// +optional
	ExportSpec *ExportSpec `json:"exportSpec,omitempty"`
	// Storage node that may hold the device directly.
	// +optional
	LocalAttachNode string `json:"localAttachNode,omitempty"`
	// The fencing counter; absent means 0.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PublicationGeneration int64 `json:"publicationGeneration,omitempty"`
	// Deletion has begun. Never reset.
	// +optional
	Deleting bool `json:"deleting,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PartialFailure says where a create stopped.
type PartialFailure struct {
	// +kubebuilder:validation:MinLength=1
	FailedOperation string      `json:"failedOperation"`
	FailedAt        metav1.Time `json:"failedAt"`
	// +optional
	Reason string `json:"reason,omitempty"`
	// +optional
	Message string `json:"message,omitempty"`
	// +optional
	BackendCreated bool `json:"backendCreated"`
	// +optional
	ExportCreated bool `json:"exportCreated"`
}

// ExportInfo is what the agent reported.
type ExportInfo struct {
	// NQN or IQN.
	// +optional
	TargetID string `json:"targetID,omitempty"`
	// Without a port.
	// +optional
	Address string `json:"address,omitempty"`
	// +optional
	Port int32 `json:"port,omitempty"`
	// +optional
	VolumeRef string `json:"volumeRef,omitempty"`
}

// PublishedNode is one publication: written before the grant, removed after the confirmed
// revoke.
type PublishedNode struct {
	// +kubebuilder:validation:MinLength=1
	NodeID string `json:"nodeID"`
	// Host NQN, initiator IQN, or the node name of a local publication.
	// +kubebuilder:validation:MinLength=1
	InitiatorID string `json:"initiatorID"`
	// Name of the CSI access mode.
	// +kubebuilder:validation:MinLength=1
	AccessMode string `json:"accessMode"`
	// +optional
	Readonly bool `json:"readonly,omitempty"`
	// +optional
	Revoking bool `json:"revoking,omitempty"`
	// +optional
	Local bool `json:"local,omitempty"`
}

// ExportSpec is the durable desired export.
type ExportSpec struct {
	// +kubebuilder:validation:MinLength=1
	BindAddress string `json:"bindAddress"`
	// 0 is the protocol's default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port       int32 `json:"port"`
	ACLEnabled bool  `json:"aclEnabled"`
	// +kubebuilder:validation:Minimum=1024
	// +optional
	InCapsuleDataSize *int32 `json:"inCapsuleDataSize,omitempty"`
	// +optional
	MaxDataTransferSize *MaxDataTransferSize `json:"maxDataTransferSize,omitempty"`
	// +optional
	NFS *NFSExportSpec `json:"nfs,omitempty"`
}

// NFSExportSpec is the NFS part of a desired export.
type NFSExportSpec struct {
	// +kubebuilder:validation:MinLength=1
	Version string `json:"version"`
	// +kubebuilder:validation:Enum=root;none;all
	Squash   string `json:"squash"`
	Readonly bool   `json:"readonly"`
}

// PillarVolumeStateList is a list of PillarVolumeStates.
//
// +kubebuilder:object:root=true
type PillarVolumeStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PillarVolumeState `json:"items"`
}
