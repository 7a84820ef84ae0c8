// Package cluster runs a real Kubernetes for the tests: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler as native processes of the lab's namespaces,
// and a kubelet with containerd and runc in every guest.
//
//	host namespace                                guests, each one node
//	  etcd           127.0.0.1:2379                 containerd, runc, CNI bridge 10.244.N.0/24
//	  kube-apiserver 10.66.0.1:443, 10.96.0.1:443   kubelet 10.66.0.x:10250
//	  controller-manager, scheduler                 /dev/ubda -> /var: images, pods, identities
//
// No kube-proxy and no DNS run: the lab's bridge carries the service address of the API
// server, and pod subnets are routed. Images come from OCI layout tars made here, never
// from a registry (package oci and images.go). Node disks are copies-on-write of one
// template that already holds every image (template.go).
//
// What lies in the lab's cache:
//
//	k8s-<key>/            programs built from tools/go.mod
//	images-<key>/         OCI layout tars
//	pillar/               the newest binaries of the product
//	pillar-image-<key>/   pillar's image with its binary, for PILLAR_LAB_IMAGE=1
//	template-<key>/       the node disk
//
// Build makes them outside of the lab, all but the template; Start runs inside. A test
// that needs no nodes takes StartControlPlane. Logs: HostDir/cluster/*.log on the host,
// /var/log/{containerd,kubelet}.log in a guest.
package cluster
