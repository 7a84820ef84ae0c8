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
//	k8s-<hash>/       programs built from tools/go.mod
//	node-<hash>/      containerd, runc, CNI plugins and configuration, shared by all guests
//	images-<hash>/    OCI layout tars
//	template-<hash>   the node disk
package cluster
