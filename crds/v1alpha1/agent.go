package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultAgentPort is the agent's gRPC port where nodeRef.port is absent.
const DefaultAgentPort int32 = 9500

// PillarAgent is one storage agent endpoint.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=pa
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.status.resolvedAddress`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.agentVersion`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PillarAgent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Where the agent is.
	// +required
	Spec PillarAgentSpec `json:"spec"`
	// What the controller learned from and about the agent. Written by the controller only.
	// +optional
	Status PillarAgentStatus `json:"status,omitempty"`
}

// PillarAgentSpec says where the agent is: exactly one of its members.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeRef) != has(self.external)",message="exactly one of nodeRef and external must be set"
// +kubebuilder:validation:XValidation:rule="has(self.nodeRef) == has(oldSelf.nodeRef)",message="cannot switch between nodeRef and external",messageExpression="'cannot switch between nodeRef and external: was ' + (has(oldSelf.nodeRef) ? 'nodeRef ' + oldSelf.nodeRef.name : 'external ' + oldSelf.external.address) + ', asked for ' + (has(self.nodeRef) ? 'nodeRef ' + self.nodeRef.name : has(self.external) ? 'external ' + self.external.address : 'neither') + '; make another PillarAgent instead'",reason=FieldValueForbidden
type PillarAgentSpec struct {
	// An agent on a node of this cluster. The controller labels the node
	// pillar-csi.bhyoo.com/agent-node=true, which schedules the agent's pod there.
	// +optional
	NodeRef *NodeRef `json:"nodeRef,omitempty"`
	// An agent outside of this cluster, started by its owner.
	// +optional
	External *ExternalAgent `json:"external,omitempty"`
}

// NodeRef names the Kubernetes node an agent runs on.
type NodeRef struct {
	// Name of the Kubernetes Node. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeRef.name is immutable",messageExpression="'nodeRef.name is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	Name string `json:"name"`
	// Which type of the node's addresses is used: InternalIP (the default) or ExternalIP.
	// +kubebuilder:validation:Enum=InternalIP;ExternalIP
	// +kubebuilder:default=InternalIP
	// +optional
	AddressType string `json:"addressType,omitempty"`
	// CIDR, such as 10.0.0.0/24, that narrows the addresses of that type; the first one
	// inside it is used. Absent (the default): the first address of that type.
	// +optional
	AddressSelector string `json:"addressSelector,omitempty"`
	// TCP port of the agent's gRPC service, 1 to 65535. Absent (the default): 9500.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`
}

// ExternalAgent is an agent's address outside of the cluster.
type ExternalAgent struct {
	// IP address or host name of the agent, without brackets and port. Immutable: volumes
	// record it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*|[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:.]*)$')",message="must be an IP address or a host name, without brackets and port; the port is external.port"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="external.address is immutable",messageExpression="'external.address is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	Address string `json:"address"`
	// TCP port of the agent's gRPC service, 1 to 65535; there is no default. Immutable: the
	// webhook says so, because CEL may not turn an integer into text to show the old one.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// PillarAgentStatus is what the controller learned from and about the agent.
type PillarAgentStatus struct {
	// Address used for gRPC, with or without a port.
	// +optional
	ResolvedAddress string `json:"resolvedAddress,omitempty"`
	// Version string the agent reports.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// What the agent can serve now.
	// +optional
	Capabilities *AgentCapabilities `json:"capabilities,omitempty"`
	// Pools of the agent's configuration that it could read. A ZFS pool with a zvol and a
	// dataset entry is listed twice.
	// +optional
	DiscoveredPools []DiscoveredPool `json:"discoveredPools,omitempty"`
	// NodeExists, AgentConnected, ExportsReady and Ready.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentCapabilities are tokens the agent can serve now.
type AgentCapabilities struct {
	// Backend tokens: zfs-zvol, zfs-dataset, lvm-lv, directory.
	// +optional
	Backends []string `json:"backends,omitempty"`
	// Protocol tokens: nvmeof-tcp, iscsi, nfs. A protocol whose kernel target does not
	// work on the node is missing.
	// +optional
	Protocols []string `json:"protocols,omitempty"`
}

// DiscoveredPool is one pool as the agent reports it.
type DiscoveredPool struct {
	// Name of the ZFS pool, volume group or logical pool.
	Name string `json:"name"`
	// Kind of pool: zfs, lvm or directory.
	Type string `json:"type"`
	// Size in bytes. Absent where it cannot be told, as for directories.
	// +optional
	Total *resource.Quantity `json:"total,omitempty"`
	// Bytes new volumes may use. Absent where it cannot be told, as for directories.
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
	// What is made in a ZFS pool: zvol or dataset. Absent for other pools.
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
	// Dataset of a ZFS pool below which volumes are made; empty means the pool's root.
	// +optional
	ParentDataset string `json:"parentDataset,omitempty"`
	// Thin pool of a volume group; empty means none.
	// +optional
	ThinPool string `json:"thinPool,omitempty"`
	// Root of a directory pool on the storage node. Absent for other pools.
	// +optional
	HostRoot string `json:"hostRoot,omitempty"`
}

// PillarAgentList is a list of PillarAgents.
//
// +kubebuilder:object:root=true
type PillarAgentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PillarAgent `json:"items"`
}
