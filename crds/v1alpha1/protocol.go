package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PillarProtocol holds transport settings. It is not tied to a node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pstr
// +kubebuilder:printcolumn:name="Bindings",type=integer,JSONPath=`.status.storageClassCount`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PillarProtocol struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The protocol and its settings.
	// +required
	Spec PillarProtocolSpec `json:"spec"`
	// Who uses the protocol. Written by the controller only.
	// +optional
	Status PillarProtocolStatus `json:"status,omitempty"`
}

// PillarProtocolSpec chooses the protocol.
type PillarProtocolSpec struct {
	// How volumes are reached: exactly one of nvmeofTcp, iscsi and nfs. Which one, is
	// immutable; the settings inside may change and affect volumes made later.
	// +kubebuilder:validation:XValidation:rule="has(self.nvmeofTcp) == has(oldSelf.nvmeofTcp) && has(self.iscsi) == has(oldSelf.iscsi) && has(self.nfs) == has(oldSelf.nfs)",message="the protocol member is immutable",messageExpression="'the protocol member is immutable: was ' + (has(oldSelf.nvmeofTcp) ? 'nvmeofTcp' : has(oldSelf.iscsi) ? 'iscsi' : 'nfs') + ', asked for ' + (has(self.nvmeofTcp) ? 'nvmeofTcp' : has(self.iscsi) ? 'iscsi' : has(self.nfs) ? 'nfs' : 'none') + '; make another PillarProtocol instead'",reason=FieldValueForbidden
	Protocol Protocol `json:"protocol"`
}

// Protocol is a union: exactly one of its members is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.nvmeofTcp), has(self.iscsi), has(self.nfs)].filter(x, x).size() == 1",message="exactly one protocol member must be set: nvmeofTcp, iscsi, nfs"
type Protocol struct {
	// NVMe over TCP, for zvols and logical volumes.
	// +optional
	NVMeOFTCP *NVMeOFTCP `json:"nvmeofTcp,omitempty"`
	// iSCSI, for zvols and logical volumes.
	// +optional
	ISCSI *ISCSI `json:"iscsi,omitempty"`
	// NFS 4.2, for datasets and adopted directories.
	// +optional
	NFS *NFS `json:"nfs,omitempty"`
}

// MaxDataTransferSize is an upper bound of one transfer in bytes; 0 is no limit.
//
// +kubebuilder:validation:Enum=0;8192;16384;32768;65536;131072;262144;524288;1048576;2097152;4194304;8388608;16777216;33554432;67108864;134217728;268435456;536870912;1073741824
type MaxDataTransferSize int32

// DefaultMaxDataTransferSize is what an unset maxDataTransferSize resolves to.
const DefaultMaxDataTransferSize MaxDataTransferSize = 4194304

// NVMeTunables are the NVMe settings a class or a volume may override.
type NVMeTunables struct {
	// Entries per I/O queue (queue_size at connect), 16 to 1024. Absent (the default): the
	// kernel's default, 128.
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=1024
	// +optional
	MaxQueueSize *int32 `json:"maxQueueSize,omitempty"`
	// Bytes of write data sent along with a command (param_inline_data_size of the target
	// port), at least 1024. All volumes on a port share one value; another one is refused.
	// Absent (the default): the port's value, 16384 where pages have 4 KiB.
	// +kubebuilder:validation:Minimum=1024
	// +optional
	InCapsuleDataSize *int32 `json:"inCapsuleDataSize,omitempty"`
	// Upper bound of one transfer in bytes (MDTS): a power of two from 8192 to 1073741824,
	// or 0 for no limit. Absent (the default): 4194304.
	// +optional
	MaxDataTransferSize *MaxDataTransferSize `json:"maxDataTransferSize,omitempty"`
	// Seconds a host keeps a lost controller and its waiting I/O (ctrl_loss_tmo). Absent
	// (the default): the kernel's default, 600.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CtrlLossTmo *int32 `json:"ctrlLossTmo,omitempty"`
	// Seconds between two attempts to reconnect (reconnect_delay). The kernel refuses 0.
	// Absent (the default): the kernel's default, 10.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReconnectDelay *int32 `json:"reconnectDelay,omitempty"`
}

// NVMeOFTCP are the settings of NVMe-oF over TCP.
type NVMeOFTCP struct {
	// TCP port of the target, 1 to 65535, 4420 by default. Fixed for a volume when it is made.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=4420
	// +optional
	Port int32 `json:"port,omitempty"`
	// true admits only the host NQNs of nodes a volume is published to; false (the default)
	// admits every host that reaches the port. Fixed for a volume when it is made.
	// +kubebuilder:default=false
	// +optional
	ACL bool `json:"acl"`

	NVMeTunables `json:",inline"`

	// true protects PDU headers by CRC32C; false by default. Read at each publish, not
	// fixed for a volume.
	// +kubebuilder:default=false
	// +optional
	HdrDigest bool `json:"hdrDigest"`
	// true protects PDU data by CRC32C; false by default. Read at each publish, not fixed
	// for a volume.
	// +kubebuilder:default=false
	// +optional
	DataDigest bool `json:"dataDigest"`
}

// ISCSITunables are the iSCSI settings a class or a volume may override, in seconds.
type ISCSITunables struct {
	// Seconds one login may take, at least 1. Absent (the default): 15.
	// +kubebuilder:validation:Minimum=1
	// +optional
	LoginTimeout *int32 `json:"loginTimeout,omitempty"`
	// Seconds I/O waits for a lost session before it fails; 0 fails it at once. Absent (the
	// default): 120.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReplacementTimeout *int32 `json:"replacementTimeout,omitempty"`
	// Seconds between two pings of an idle session; 0 sends none. Absent (the default): 5.
	// +kubebuilder:validation:Minimum=0
	// +optional
	NoopOutInterval *int32 `json:"noopOutInterval,omitempty"`
	// Seconds a ping may stay unanswered. Absent (the default): 5.
	// +kubebuilder:validation:Minimum=0
	// +optional
	NoopOutTimeout *int32 `json:"noopOutTimeout,omitempty"`
}

// ISCSI are the settings of iSCSI.
//
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !has(self.auth.method) || self.auth.method == 'None' || has(self.auth.secretRef)",message="auth.secretRef is required for CHAP and MutualCHAP"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !has(self.auth.method) || self.auth.method == 'None' || (has(self.acl) && self.acl)",message="CHAP and MutualCHAP require acl: true"
type ISCSI struct {
	// TCP port of the target, 1 to 65535, 3260 by default. Fixed for a volume when it is made.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=3260
	// +optional
	Port int32 `json:"port,omitempty"`
	// true admits only the initiator IQNs of nodes a volume is published to; false (the
	// default) admits every initiator that reaches the port. Fixed for a volume when it is
	// made.
	// +kubebuilder:default=false
	// +optional
	ACL bool `json:"acl"`

	ISCSITunables `json:",inline"`

	// Authentication of sessions; none by default. Needs acl: true.
	// +optional
	Auth *ISCSIAuth `json:"auth,omitempty"`
}

// The values of auth.method.
const (
	AuthNone       = "None"
	AuthCHAP       = "CHAP"
	AuthMutualCHAP = "MutualCHAP"
)

// ISCSIAuth is fixed for a volume when it is created.
type ISCSIAuth struct {
	// None (the default), CHAP (the target asks who the initiator is) or MutualCHAP (both
	// ask). Fixed for a volume when it is made.
	// +kubebuilder:validation:Enum=None;CHAP;MutualCHAP
	// +kubebuilder:default=None
	// +optional
	Method string `json:"method,omitempty"`
	// Secret with the keys username and password, for MutualCHAP also mutualUsername and
	// mutualPassword, in the namespace pillar is installed in. Needed by CHAP and
	// MutualCHAP. Its contents are read at each use.
	// +optional
	SecretRef *SecretRef `json:"secretRef,omitempty"`
}

// SecretRef names a Secret.
type SecretRef struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// NFS are the settings of NFS.
type NFS struct {
	// NFS version; only "4.2", which is the default.
	// +kubebuilder:validation:Enum="4.2"
	// +kubebuilder:default="4.2"
	// +optional
	Version string `json:"version,omitempty"`
	// TCP port of the server; only 2049, which is the default.
	// +kubebuilder:validation:Enum=2049
	// +kubebuilder:default=2049
	// +optional
	Port int32 `json:"port,omitempty"`
	// true admits only the addresses of nodes a volume is published to; false (the default)
	// admits every client that reaches the port. Fixed for a volume when it is made.
	// +kubebuilder:default=false
	// +optional
	ACL bool `json:"acl"`
	// Whose user the server maps to nobody: root (the default), none or all. Fixed for a
	// volume when it is made.
	// +kubebuilder:validation:Enum=root;none;all
	// +kubebuilder:default=root
	// +optional
	Squash string `json:"squash,omitempty"`
}

// PillarProtocolStatus says who uses the protocol.
type PillarProtocolStatus struct {
	// Number of PillarStorageClasses that name it.
	// +kubebuilder:validation:Minimum=0
	// +optional
	StorageClassCount int32 `json:"storageClassCount"`
	// Names of the PillarAgents reached through those classes and their stores, sorted.
	// +optional
	ActiveAgents []string `json:"activeAgents,omitempty"`
	// Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PillarProtocolList is a list of PillarProtocols.
//
// +kubebuilder:object:root=true
type PillarProtocolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PillarProtocol `json:"items"`
}
