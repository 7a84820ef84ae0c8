package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PillarVolumeReservation keeps two claims from importing one resource: its name is a
// function of the resource, so the second create loses. Only the controller writes it; an
// operator may delete it once claim and PillarVolumeState are gone.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=pvrs
// +kubebuilder:printcolumn:name="Owner",type=string,JSONPath=`.spec.ownerVolume`
// +kubebuilder:printcolumn:name="BackendVolume",type=string,JSONPath=`.spec.agentVolumeID`
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=`.spec.agentRef`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PillarVolumeReservation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The resource and who reserved it. Immutable.
	// +required
	Spec PillarVolumeReservationSpec `json:"spec"`
}

// PillarVolumeReservationSpec names the resource and its owner. All of it is immutable.
//
// +kubebuilder:validation:XValidation:rule="has(self.filesystemResourceID) == has(oldSelf.filesystemResourceID) && (!has(self.filesystemResourceID) || self.filesystemResourceID == oldSelf.filesystemResourceID)",fieldPath=".filesystemResourceID",message="filesystemResourceID is immutable",messageExpression="'filesystemResourceID is immutable: was ' + (has(oldSelf.filesystemResourceID) ? oldSelf.filesystemResourceID : 'absent') + ', asked for ' + (has(self.filesystemResourceID) ? self.filesystemResourceID : 'absent')",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="has(self.claimRef) == has(oldSelf.claimRef) && (!has(self.claimRef) || self.claimRef == oldSelf.claimRef)",fieldPath=".claimRef",message="claimRef is immutable",messageExpression="'claimRef is immutable: was ' + (has(oldSelf.claimRef) ? oldSelf.claimRef.uid : 'absent') + ', asked for ' + (has(self.claimRef) ? self.claimRef.uid : 'absent')",reason=FieldValueForbidden
type PillarVolumeReservationSpec struct {
	// Name of the PillarAgent that holds the resource. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="agentRef is immutable",messageExpression="'agentRef is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	AgentRef string `json:"agentRef"`
	// Backend token: zfs-zvol, zfs-dataset, lvm-lv or directory. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="backendType is immutable",messageExpression="'backendType is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	BackendType string `json:"backendType"`
	// Agent volume ID of the resource: <pool>/<name>. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="agentVolumeID is immutable",messageExpression="'agentVolumeID is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	AgentVolumeID string `json:"agentVolumeID"`
	// Name of the PillarVolumeState the resource is reserved for. Immutable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ownerVolume is immutable",messageExpression="'ownerVolume is immutable: was ' + oldSelf + ', asked for ' + self",reason=FieldValueForbidden
	OwnerVolume string `json:"ownerVolume"`
	// Native identity of an adopted filesystem, so that two names of one directory collide.
	// Absent for block volumes. Immutable.
	// +optional
	FilesystemResourceID string `json:"filesystemResourceID,omitempty"`
	// Claim the owner is made for. Immutable.
	// +optional
	ClaimRef *ClaimRef `json:"claimRef,omitempty"`
}

// PillarVolumeReservationList is a list of PillarVolumeReservations.
//
// +kubebuilder:object:root=true
type PillarVolumeReservationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PillarVolumeReservation `json:"items"`
}
