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

	// What the volume is. Written once.
	// +required
	Spec PillarVolumeStateSpec `json:"spec"`
	// What happened to it and who has it.
	// +optional
	Status PillarVolumeStateStatus `json:"status,omitempty"`
}

// PillarVolumeStateSpec is written once, at the first CreateVolume.
//
// +kubebuilder:validation:XValidation:rule="[has(self.filesystemAdoption), has(self.importedFrom) && self.importedFrom != \"\", has(self.lvmSource)].filter(x, x).size() <= 1",message="filesystemAdoption, importedFrom and lvmSource exclude each other"
// +kubebuilder:validation:XValidation:rule="!has(self.recovery) || !(has(self.filesystemAdoption) || (has(self.importedFrom) && self.importedFrom != \"\") || has(self.lvmSource))",message="recovery excludes filesystemAdoption, importedFrom and lvmSource"
// +kubebuilder:validation:XValidation:rule="has(self.filesystemAdoption) == has(oldSelf.filesystemAdoption)",message="filesystemAdoption cannot be added or removed",fieldPath=".filesystemAdoption",messageExpression="'filesystemAdoption cannot be added or removed: was ' + (has(oldSelf.filesystemAdoption) ? oldSelf.filesystemAdoption.canonicalSource : 'absent') + ', asked for ' + (has(self.filesystemAdoption) ? self.filesystemAdoption.canonicalSource : 'absent')",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.lvmSource) == has(oldSelf.lvmSource)",message="lvmSource cannot be added or removed",fieldPath=".lvmSource",messageExpression="'lvmSource cannot be added or removed: was ' + (has(oldSelf.lvmSource) ? oldSelf.lvmSource.logicalVolumeUUID : 'absent') + ', asked for ' + (has(self.lvmSource) ? self.lvmSource.logicalVolumeUUID : 'absent')",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.recovery) == has(oldSelf.recovery)",message="recovery cannot be added or removed",fieldPath=".recovery",messageExpression="'recovery cannot be added or removed: was ' + (has(oldSelf.recovery) ? oldSelf.recovery.oldVolumeUID : 'absent') + ', asked for ' + (has(self.recovery) ? self.recovery.oldVolumeUID : 'absent')",reason=FieldValueForbidden
type PillarVolumeStateSpec struct {
	// CSI volume ID: <PillarAgent>/<protocol token>/<backend token>/<agent volume ID>.
	// +kubebuilder:validation:MinLength=1
	VolumeID string `json:"volumeID"`
	// Agent volume ID: <pool>/<volume name>.
	// +kubebuilder:validation:MinLength=1
	AgentVolumeID string `json:"agentVolumeID"`
	// Name of the PillarAgent that holds the volume.
	// +kubebuilder:validation:MinLength=1
	AgentRef string `json:"agentRef"`
	// Backend token: zfs-zvol, zfs-dataset, lvm-lv or directory.
	// +kubebuilder:validation:MinLength=1
	BackendType string `json:"backendType"`
	// Protocol token: nvmeof-tcp, iscsi or nfs.
	// +kubebuilder:validation:MinLength=1
	ProtocolType string `json:"protocolType"`
	// Bytes asked for by the first attempt, for an adopted filesystem the exact limit of its
	// source. Never changed.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CapacityBytes int64 `json:"capacityBytes"`
	// Claim the volume was made for. Never rewritten.
	// +optional
	ClaimRef *ClaimRef `json:"claimRef,omitempty"`
	// Full dataset name of an imported zvol, for information. Absent otherwise.
	// +optional
	ImportedFrom string `json:"importedFrom,omitempty"`
	// Identity of an adopted directory or ZFS filesystem. Absent otherwise. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="filesystemAdoption is immutable",messageExpression="'filesystemAdoption is immutable: was ' + oldSelf.kind + ' ' + oldSelf.canonicalSource + ' ' + oldSelf.resourceID + ', asked for ' + self.kind + ' ' + self.canonicalSource + ' ' + self.resourceID",reason=FieldValueForbidden
	// +optional
	FilesystemAdoption *FilesystemAdoption `json:"filesystemAdoption,omitempty"`
	// Identity and policy of an adopted logical volume. Absent otherwise. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="lvmSource is immutable",messageExpression="'lvmSource is immutable: was ' + oldSelf.volumeGroup + '/' + oldSelf.logicalVolume + ':' + oldSelf.volumeGroupUUID + ':' + oldSelf.logicalVolumeUUID + ' preserveOriginal ' + (oldSelf.preserveOriginal ? 'true' : 'false') + ', asked for ' + self.volumeGroup + '/' + self.logicalVolume + ':' + self.volumeGroupUUID + ':' + self.logicalVolumeUUID + ' preserveOriginal ' + (self.preserveOriginal ? 'true' : 'false')",reason=FieldValueForbidden
	// +optional
	LVMSource *LVMSource `json:"lvmSource,omitempty"`
	// Effective settings, resolved once from store, protocol, class and claim, and replayed
	// by every retry.
	// +optional
	Resolved *Resolved `json:"resolved,omitempty"`
	// Ownership transfer after metadata loss. Absent for every other volume.
	// +optional
	Recovery *Recovery `json:"recovery,omitempty"`
}

// ClaimRef identifies a PersistentVolumeClaim.
type ClaimRef struct {
	// UID of the claim.
	// +kubebuilder:validation:MinLength=1
	UID string `json:"uid"`
	// Namespace of the claim.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Name of the claim.
	// +optional
	Name string `json:"name,omitempty"`
}

// FilesystemAdoption pins the identity of an adopted directory or ZFS filesystem.
//
// +kubebuilder:validation:XValidation:rule="self.kind != 'directory' || (self.filesystemType in ['ext4', 'xfs'] && has(self.filesystemID) && has(self.inode) && has(self.projectID) && !has(self.hostPath))",message="directory needs ext4 or xfs, filesystemID, inode and projectID, and no hostPath"
// +kubebuilder:validation:XValidation:rule="self.kind != 'zfs-dataset' || (self.filesystemType == 'zfs' && !has(self.filesystemID) && !has(self.inode) && !has(self.projectID))",message="zfs-dataset needs zfs, and no filesystemID, inode or projectID"
type FilesystemAdoption struct {
	// What was adopted: directory or zfs-dataset.
	// +kubebuilder:validation:Enum=directory;zfs-dataset
	Kind string `json:"kind"`
	// Canonical absolute path of the directory, or full name of the dataset.
	// +kubebuilder:validation:MinLength=1
	CanonicalSource string `json:"canonicalSource"`
	// Native identity: filesystem UUID and root inode, or the dataset's GUID.
	// +kubebuilder:validation:MinLength=1
	ResourceID string `json:"resourceID"`
	// Mountpoint of the dataset on the storage node. Absent for a directory.
	// +optional
	HostPath string `json:"hostPath,omitempty"`
	// Type of the filesystem: ext4 or xfs for a directory, zfs for a dataset.
	// +kubebuilder:validation:Enum=ext4;xfs;zfs
	FilesystemType string `json:"filesystemType"`
	// UUID of the filesystem a directory lies in. Absent for a dataset.
	// +optional
	FilesystemID string `json:"filesystemID,omitempty"`
	// Inode number of the directory, decimal, at most 64 bits. Absent for a dataset.
	// +kubebuilder:validation:Pattern=`^[1-9][0-9]{0,19}$`
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:XValidation:rule="size(self) < 20 || self <= '18446744073709551615'",message="inode must fit 64 bits"
	// +optional
	Inode string `json:"inode,omitempty"`
	// Project ID of the directory's quota, at least 1. Absent for a dataset.
	// +kubebuilder:validation:Minimum=1
	// +optional
	ProjectID *int64 `json:"projectID,omitempty"`
}

// LVMUUID is an LVM identifier as lvs(8) prints it. Its length is stated so that CEL may
// show it in a message.
//
// +kubebuilder:validation:MaxLength=38
// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]{6}(-[A-Za-z0-9]{4}){5}-[A-Za-z0-9]{6}$`
type LVMUUID string

// LVMSource pins the identity and policy of an adopted logical volume.
type LVMSource struct {
	// Name of the volume group, at most 127 bytes (lvm(8)).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=127
	VolumeGroup string `json:"volumeGroup"`
	// Name of the logical volume, at most 127 bytes (lvm(8)).
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=127
	LogicalVolume string `json:"logicalVolume"`
	// UUID of the volume group, as vgs(8) prints it.
	VolumeGroupUUID LVMUUID `json:"volumeGroupUUID"`
	// UUID of the logical volume, as lvs(8) prints it.
	LogicalVolumeUUID LVMUUID `json:"logicalVolumeUUID"`
	// true keeps the logical volume when the volume is deleted, and never formats, grows or
	// checks it; false manages it like one pillar made.
	PreserveOriginal bool `json:"preserveOriginal"`
}

// Resolved is the effective configuration of a volume.
type Resolved struct {
	// The store's backend with the overrides of class and claim.
	Backend Backend `json:"backend"`
	// The protocol with the overrides of class and claim.
	Protocol Protocol `json:"protocol"`
	// The filesystem. Absent for raw block volumes. Its mountOptions are present only where they are not
	// the class's own list, which reaches the node as the capability's mount flags.
	// +optional
	Filesystem *Filesystem `json:"filesystem,omitempty"`
	// Whether a pod on the storage node itself uses the backend's device without the
	// network; false by default.
	// +optional
	LocalAttach bool `json:"localAttach,omitempty"`
}

// Recovery is the intent of an ownership transfer after metadata loss.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.newVolumeUID) || (has(self.newVolumeUID) && self.newVolumeUID == oldSelf.newVolumeUID)",message="newVolumeUID is written once",fieldPath=".newVolumeUID",messageExpression="'newVolumeUID is written once: was ' + oldSelf.newVolumeUID + ', asked for ' + (has(self.newVolumeUID) ? self.newVolumeUID : 'absent')",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.authorizationDigest) || (has(self.authorizationDigest) && self.authorizationDigest == oldSelf.authorizationDigest)",message="authorizationDigest is written once",fieldPath=".authorizationDigest",messageExpression="'authorizationDigest is written once: was ' + oldSelf.authorizationDigest + ', asked for ' + (has(self.authorizationDigest) ? self.authorizationDigest : 'absent')",reason=FieldValueForbidden
type Recovery struct {
	// UID of the lifecycle that owns the logical volume on the agent. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="recovery.oldVolumeUID is immutable",messageExpression="'recovery.oldVolumeUID is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	OldVolumeUID string `json:"oldVolumeUID"`
	// Generation of that lifecycle. Immutable.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="recovery.oldGeneration is immutable",reason=FieldValueForbidden
	OldGeneration int64 `json:"oldGeneration"`
	// The logical volume whose ownership is transferred. Immutable.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="recovery.source is immutable",messageExpression="'recovery.source is immutable: was ' + oldSelf.volumeGroup + '/' + oldSelf.logicalVolume + ':' + oldSelf.volumeGroupUUID + ':' + oldSelf.logicalVolumeUUID + ' preserveOriginal ' + (oldSelf.preserveOriginal ? 'true' : 'false') + ', asked for ' + self.volumeGroup + '/' + self.logicalVolume + ':' + self.volumeGroupUUID + ':' + self.logicalVolumeUUID + ' preserveOriginal ' + (self.preserveOriginal ? 'true' : 'false')",reason=FieldValueForbidden
	Source LVMSource `json:"source"`
	// Generation the new lifecycle begins with. Immutable.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="recovery.newGeneration is immutable",reason=FieldValueForbidden
	NewGeneration int64 `json:"newGeneration"`
	// UID of this object, written once after it was created. The controller checks that it
	// is its own, because CEL cannot see metadata.uid.
	// +kubebuilder:validation:MinLength=1
	// +optional
	NewVolumeUID string `json:"newVolumeUID,omitempty"`
	// SHA-256 of the authorization, 64 lowercase hex digits. Written once.
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	// +optional
	AuthorizationDigest string `json:"authorizationDigest,omitempty"`
	// The operator's signed authorization. Only bytes that match the digest are ever used.
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
	// How far the volume got: Provisioning, CreatePartial (the backend exists, the export is
	// not confirmed), Ready, or RecoveryPending. The other phases read as Ready.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Where the last attempt stopped. Set in the partial phases, cleared when resolved.
	// +optional
	PartialFailure *PartialFailure `json:"partialFailure,omitempty"`
	// Path of the device the agent created; present from CreatePartial until Ready.
	// +optional
	BackendDevicePath string `json:"backendDevicePath,omitempty"`
	// Actual size in bytes as the agent last reported it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CapacityBytes int64 `json:"capacityBytes,omitempty"`
	// true once the agent durably took ownership of an imported or adopted resource.
	// +optional
	ImportAcquired bool `json:"importAcquired,omitempty"`
	// The export as the agent last reported it.
	// +optional
	ExportInfo *ExportInfo `json:"exportInfo,omitempty"`
	// Nodes the volume is published to: written before the grant, removed after the
	// confirmed revoke.
	// +listType=map
	// +listMapKey=nodeID
	// +optional
	PublishedNodes []PublishedNode `json:"publishedNodes,omitempty"`
	// The desired export; the only source for rebuilding it. An operator may add it once
	// where it is missing.
	// +optional
	ExportSpec *ExportSpec `json:"exportSpec,omitempty"`
	// Storage node that may hold the device directly. Absent: none.
	// +optional
	LocalAttachNode string `json:"localAttachNode,omitempty"`
	// The fencing generation: grows by 1 with every operation that changes something.
	// Absent means 0.
	// +kubebuilder:validation:Minimum=0
	// +optional
	PublicationGeneration int64 `json:"publicationGeneration,omitempty"`
	// true once deletion has begun. Never reset.
	// +optional
	Deleting bool `json:"deleting,omitempty"`
	// BackendCreated, ExportCreated, ExportReconciled and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PartialFailure says where a create stopped.
type PartialFailure struct {
	// Operation that failed.
	// +kubebuilder:validation:MinLength=1
	FailedOperation string `json:"failedOperation"`
	// When it failed.
	FailedAt metav1.Time `json:"failedAt"`
	// Code of the failure.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Text of the failure.
	// +optional
	Message string `json:"message,omitempty"`
	// Whether the backend exists.
	// +optional
	BackendCreated bool `json:"backendCreated"`
	// Whether the export exists.
	// +optional
	ExportCreated bool `json:"exportCreated"`
}

// ExportInfo is what the agent reported.
type ExportInfo struct {
	// Subsystem NQN, target IQN or NFS export path.
	// +optional
	TargetID string `json:"targetID,omitempty"`
	// IP address or host name, without a port.
	// +optional
	Address string `json:"address,omitempty"`
	// TCP port.
	// +optional
	Port int32 `json:"port,omitempty"`
	// The volume at the target: subsystem NQN, LUN or NFS export path.
	// +optional
	VolumeRef string `json:"volumeRef,omitempty"`
}

// PublishedNode is one publication: written before the grant, removed after the confirmed
// revoke.
type PublishedNode struct {
	// CSI node ID: the name of the Kubernetes node.
	// +kubebuilder:validation:MinLength=1
	NodeID string `json:"nodeID"`
	// What was granted: host NQN, initiator IQN, the node's NFS client addresses joined by
	// commas, or the node name of a local publication.
	// +kubebuilder:validation:MinLength=1
	InitiatorID string `json:"initiatorID"`
	// Name of the CSI access mode, such as SINGLE_NODE_WRITER.
	// +kubebuilder:validation:MinLength=1
	AccessMode string `json:"accessMode"`
	// Whether the publication is read-only; false by default.
	// +optional
	Readonly bool `json:"readonly,omitempty"`
	// Whether the publication is being taken back; false by default.
	// +optional
	Revoking bool `json:"revoking,omitempty"`
	// Whether the node uses the backend's device without the network; false by default.
	// +optional
	Local bool `json:"local,omitempty"`
}

// ExportSpec is the durable desired export.
type ExportSpec struct {
	// IP address the target listens on, without a port.
	// +kubebuilder:validation:MinLength=1
	BindAddress string `json:"bindAddress"`
	// TCP port the target listens on; 0 is the protocol's default.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
	// Whether only the initiators of publishedNodes are admitted.
	ACLEnabled bool `json:"aclEnabled"`
	// Bytes of write data sent along with an NVMe command, at least 1024. Absent: the
	// port's value.
	// +kubebuilder:validation:Minimum=1024
	// +optional
	InCapsuleDataSize *int32 `json:"inCapsuleDataSize,omitempty"`
	// Upper bound of one NVMe transfer in bytes, 0 for no limit. Absent: the port's value.
	// +optional
	MaxDataTransferSize *MaxDataTransferSize `json:"maxDataTransferSize,omitempty"`
	// The NFS part. Absent for block volumes.
	// +optional
	NFS *NFSExportSpec `json:"nfs,omitempty"`
}

// NFSExportSpec is the NFS part of a desired export.
type NFSExportSpec struct {
	// NFS version, such as 4.2.
	// +kubebuilder:validation:MinLength=1
	Version string `json:"version"`
	// Whose user the server maps to nobody: root, none or all.
	// +kubebuilder:validation:Enum=root;none;all
	Squash string `json:"squash"`
	// Whether the export is read-only for everyone.
	Readonly bool `json:"readonly"`
}

// PillarVolumeStateList is a list of PillarVolumeStates.
//
// +kubebuilder:object:root=true
type PillarVolumeStateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PillarVolumeState `json:"items"`
}
