// Package v1alpha1 is the Kubernetes API of pillar: the objects a user writes to describe
// storage nodes, pools, protocols and classes, and the two the controller writes to remember
// volumes and what they import.
//
//	PillarAgent              one storage agent: where it is, what it can serve
//	PillarStore              one pool on one agent
//	PillarProtocol           how volumes are reached: NVMe-oF/TCP, iSCSI or NFS
//	PillarStorageClass       store + protocol + filesystem; generates a StorageClass
//	PillarVolumeState        the ledger of one volume lifecycle; its UID is the fencing identity
//	PillarVolumeReservation  a resource only one claim may import
//
// Every schema rule stands here as a marker, so that it holds without any webhook:
// ranges, enums, exactly-one unions and immutability. Rules use only what the CEL of
// Kubernetes 1.25 has; newer parts of a marker (messageExpression, reason, fieldPath) are
// dropped by an older API server, which then answers with the plain message.
//
// +kubebuilder:object:generate=true
// +groupName=pillar-csi.bhyoo.com
package v1alpha1

//go:generate go tool controller-gen object paths=.
//go:generate go tool controller-gen crd paths=. output:crd:dir=../manifests
