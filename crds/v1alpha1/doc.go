// Package v1alpha1 is the Kubernetes API of pillar: the objects a user writes to describe
// storage nodes, pools, protocols and classes, and the one object the controller writes to
// remember a volume.
//
//	PillarAgent         one storage agent: where it is, what it can serve
//	PillarStore         one pool on one agent
//	PillarProtocol      how volumes are reached: NVMe-oF/TCP, iSCSI or NFS
//	PillarStorageClass  store + protocol + filesystem; generates a Kubernetes StorageClass
//	PillarVolumeState   the ledger of one volume lifecycle; its UID is the fencing identity
//
// Every schema rule stands here as a marker, so that it holds without any webhook:
// ranges, enums, exactly-one unions and immutability.
//
// +kubebuilder:object:generate=true
// +groupName=pillar-csi.bhyoo.com
package v1alpha1

//go:generate go tool controller-gen object paths=.
//go:generate go tool controller-gen crd paths=. output:crd:dir=../manifests
