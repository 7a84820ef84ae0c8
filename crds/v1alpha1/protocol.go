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

	// +required
	Spec PillarProtocolSpec `json:"spec"`
	// +optional
	Status PillarProtocolStatus `json:"status,omitempty"`
}

// PillarProtocolSpec chooses the protocol.
type PillarProtocolSpec struct {
	// +kubebuilder:validation:XValidation:rule="has(self.nvmeofTcp) == has(oldSelf.nvmeofTcp) && has(self.iscsi) == has(oldSelf.iscsi) && has(self.nfs) == has(oldSelf.nfs)",message="the protocol member is immutable"
	Protocol Protocol `json:"protocol"`
}

// Protocol is a union: exactly one of its members is set.
//
// +kubebuilder:validation:XValidation:rule="[has(self.nvmeofTcp), has(self.iscsi), has(self.nfs)].filter(x, x).size() == 1",message="exactly one protocol member must be set: nvmeofTcp, iscsi, nfs"
type Protocol struct {
	// +optional
	NVMeOFTCP *NVMeOFTCP `json:"nvmeofTcp,omitempty"`
	// +optional
	ISCSI *ISCSI `json:"iscsi,omitempty"`
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
	// queue_size at connect; unset is the kernel's default, 128.
	// +kubebuilder:validation:Minimum=16
	// +kubebuilder:validation:Maximum=1024
	// +optional
	MaxQueueSize *int32 `json:"maxQueueSize,omitempty"`
	// param_inline_data_size of the port in bytes; unset accepts the port's value.
	// +kubebuilder:validation:Minimum=1024
	// +optional
	InCapsuleDataSize *int32 `json:"inCapsuleDataSize,omitempty"`
	// Unset resolves to 4194304.
	// +optional
	MaxDataTransferSize *MaxDataTransferSize `json:"maxDataTransferSize,omitempty"`
	// Seconds a lost controller is kept; unset is the kernel's default, 600.
	// +kubebuilder:validation:Minimum=0
	// +optional
	CtrlLossTmo *int32 `json:"ctrlLossTmo,omitempty"`
	// Seconds between reconnects; unset is the kernel's default, 10.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReconnectDelay *int32 `json:"reconnectDelay,omitempty"`
}

// NVMeOFTCP are the settings of NVMe-oF over TCP.
type NVMeOFTCP struct {
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=4420
	// +optional
	Port int32 `json:"port,omitempty"`
	// true admits only host NQNs of published nodes; false admits every host.
	// +kubebuilder:default=false
	// +optional
	ACL bool `json:"acl"`

	NVMeTunables `json:",inline"`

	// CRC32C of PDU headers. Read at each publish, not recorded per volume.
	// +kubebuilder:default=false
	// +optional
	HdrDigest bool `json:"hdrDigest"`
	// CRC32C of PDU data. Read at each publish, not recorded per volume.
	// +kubebuilder:default=false
	// +optional
	DataDigest bool `json:"dataDigest"`
}

// ISCSITunables are the iSCSI settings a class or a volume may override, in seconds.
type ISCSITunables struct {
	// Unset is 15.
	// +kubebuilder:validation:Minimum=1
	// +optional
	LoginTimeout *int32 `json:"loginTimeout,omitempty"`
	// Unset is 120; 0 fails I/O at once.
	// +kubebuilder:validation:Minimum=0
	// +optional
	ReplacementTimeout *int32 `json:"replacementTimeout,omitempty"`
	// Unset is 5; 0 disables pings.
	// +kubebuilder:validation:Minimum=0
	// +optional
	NoopOutInterval *int32 `json:"noopOutInterval,omitempty"`
	// Unset is 5.
	// +kubebuilder:validation:Minimum=0
	// +optional
	NoopOutTimeout *int32 `json:"noopOutTimeout,omitempty"`
}

// ISCSI are the settings of iSCSI.
//
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !has(self.auth.method) || self.auth.method == 'None' || has(self.auth.secretRef)",message="auth.secretRef is required for CHAP and MutualCHAP"
// +kubebuilder:validation:XValidation:rule="!has(self.auth) || !has(self.auth.method) || self.auth.method == 'None' || (has(self.acl) && self.acl)",message="CHAP and MutualCHAP require acl: true"
type ISCSI struct {
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +kubebuilder:default=3260
	// +optional
	Port int32 `json:"port,omitempty"`
	// true admits only initiator IQNs of published nodes; false admits every initiator.
	// +kubebuilder:default=false
	// +optional
	ACL bool `json:"acl"`

	ISCSITunables `json:",inline"`

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
	// +kubebuilder:validation:Enum=None;CHAP;MutualCHAP
	// +kubebuilder:default=None
	// +optional
	Method string `json:"method,omitempty"`
	// Secret of the namespace pillar is installed in.
	// +optional
	SecretRef *SecretRef `json:"secretRef,omitempty"`
}

// SecretRef names a Secret.
type SecretRef struct {
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
}

// NFS are the settings of NFS.
type NFS struct {
	// +kubebuilder:validation:Enum="4.2"
	// +kubebuilder:default="4.2"
	// +optional
	Version string `json:"version,omitempty"`
	// +kubebuilder:validation:Enum=2049
	// +kubebuilder:default=2049
	// +optional
	Port int32 `json:"port,omitempty"`
	// true admits only addresses of published nodes; false admits every client.
	// +kubebuilder:default=false
	// +optional
	ACL bool `json:"acl"`
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
	// Agents reached through those classes, sorted.
	// +optional
	ActiveAgents []string `json:"activeAgents,omitempty"`
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
