// Package scale runs everything that decides, as users run it, against many volumes, and
// nothing that stores: no guest, no kernel target, no kubelet.
//
//	etcd, kube-apiserver, kube-controller-manager (volume controllers only)
//	  │ CRDs, RBAC and CSIDriver of deploy/kustomize/base
//	  ├── pillar controller                        a container each: the manifest's flags,
//	  ├── csi-provisioner, -attacher, -resizer     rights and restart policy
//	  └── the test: claims, VolumeAttachments, fake nodes
//	        pillar controller ──gRPC──▶ Agent      in this process: real fencing and wire,
//	                                               volumes and exports in maps
//
// World is all of it. Nothing outlives it: see cluster.StartProcess.
package scale
