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

	// +required
	Spec PillarAgentSpec `json:"spec"`
	// +optional
	Status PillarAgentStatus `json:"status,omitempty"`
}

// PillarAgentSpec says where the agent is: exactly one of its members.
//
// +kubebuilder:validation:XValidation:rule="has(self.nodeRef) != has(self.external)",message="exactly one of nodeRef and external must be set"
// +kubebuilder:validation:XValidation:rule="has(self.nodeRef) == has(oldSelf.nodeRef)",message="cannot switch between nodeRef and external"
type PillarAgentSpec struct {
	// An agent on a node of this cluster.
	// +optional
	NodeRef *NodeRef `json:"nodeRef,omitempty"`
	// An agent outside of this cluster.
	// +optional
	External *ExternalAgent `json:"external,omitempty"`
}

// NodeRef names the Kubernetes node an agent runs on.
type NodeRef struct {
	// Name of the Node.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="nodeRef.name is immutable"
	Name string `json:"name"`
	// Which of the node's addresses is used.
	// +kubebuilder:validation:Enum=InternalIP;ExternalIP
	// +kubebuilder:default=InternalIP
	// +optional
	AddressType string `json:"addressType,omitempty"`
	// CIDR that narrows the addresses of that type.
	// +optional
	AddressSelector string `json:"addressSelector,omitempty"`
	// The agent's gRPC port; 9500 when absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port *int32 `json:"port,omitempty"`
}

// ExternalAgent is an agent's address outside of the cluster.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="external is immutable"
type ExternalAgent struct {
	// IP address or host name.
	// +kubebuilder:validation:MinLength=1
	Address string `json:"address"`
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// PillarAgentStatus is what the controller learned from and about the agent.
type PillarAgentStatus struct {
	// Address used for gRPC, with port.
	// +optional
	ResolvedAddress string `json:"resolvedAddress,omitempty"`
	// Version the agent reports.
	// +optional
	AgentVersion string `json:"agentVersion,omitempty"`
	// What the agent can serve now.
	// +optional
	Capabilities *AgentCapabilities `json:"capabilities,omitempty"`
	// Pools of the agent's configuration that it could read.
	// +optional
	DiscoveredPools []DiscoveredPool `json:"discoveredPools,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// AgentCapabilities are tokens the agent can serve now.
type AgentCapabilities struct {
	// +optional
	Backends []string `json:"backends,omitempty"`
	// +optional
	Protocols []string `json:"protocols,omitempty"`
}

// DiscoveredPool is one pool as the agent reports it.
type DiscoveredPool struct {
	Name string `json:"name"`
	// zfs, lvm or directory.
	Type string `json:"type"`
	// +optional
	Total *resource.Quantity `json:"total,omitempty"`
	// +optional
	Available *resource.Quantity `json:"available,omitempty"`
	// ZFS: zvol or dataset.
	// +optional
	VolumeType string `json:"volumeType,omitempty"`
	// ZFS: empty means the pool's root.
	// +optional
	ParentDataset string `json:"parentDataset,omitempty"`
	// LVM: empty means none.
	// +optional
	ThinPool string `json:"thinPool,omitempty"`
	// Directory.
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
