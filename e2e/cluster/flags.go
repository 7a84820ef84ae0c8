package cluster

import (
	"fmt"
	"path/filepath"
	"strings"
)

// The smallest flag sets that make a control plane of Kubernetes 1.37 work. Data is gone
// with the lab, so nothing is synced to disk.

func (c *ControlPlane) etcdFlags() []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.layout.etcd[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.layout.etcd[1])
	return []string{
		"--data-dir=" + filepath.Join(c.dir, "etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=default=" + peer,
		"--unsafe-no-fsync", "--log-level=warn",
	}
}

func (c *ControlPlane) apiserverFlags() []string {
	return []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.layout.etcd[0]),
		fmt.Sprintf("--bind-address=%s", c.layout.bind),
		fmt.Sprintf("--advertise-address=%s", c.layout.reach),
		fmt.Sprintf("--secure-port=%d", c.layout.port),
		"--endpoint-reconciler-type=none", // accepts a loopback address to advertise
		"--tls-cert-file=" + c.keys.path("server.crt"),
		"--tls-private-key-file=" + c.keys.path("server.key"),
		"--client-ca-file=" + c.keys.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.keys.path("sa.pub"),
		"--service-account-signing-key-file=" + c.keys.path("sa.key"),
		"--token-auth-file=" + c.keys.path("tokens.csv"),
		"--service-cluster-ip-range=" + serviceRange,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--kubelet-preferred-address-types=InternalIP", // logs and exec: there is no DNS
		"--enable-aggregator-routing=true",             // calls webhooks in their pods: there is no kube-proxy
		"--profiling=false", "--v=1",
	}
}

func (c *ControlPlane) controllerFlags() []string {
	flags := []string{
		"--kubeconfig=" + c.kubeconfig(userController),
		"--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + c.keys.path("sa.key"),
		"--root-ca-file=" + c.keys.path("ca.crt"),
		"--v=1",
	}
	if len(c.layout.controllers) == 0 {
		return flags
	}
	// Its own rate limit, 20 requests a second and controller, would be what a test of
	// others measures.
	return append(flags, "--controllers="+strings.Join(c.layout.controllers, ","),
		"--kube-api-qps=1000", "--kube-api-burst=1000", "--secure-port=0")
}

func (c *ControlPlane) schedulerFlags() []string {
	return []string{
		"--kubeconfig=" + c.kubeconfig(userScheduler),
		"--bind-address=127.0.0.1", "--leader-elect=false", "--profiling=false",
		"--v=1",
	}
}
