package cluster

import "fmt"

// kubeletConfig is the same on every node. What differs from a kubelet's defaults and why:
// guests have no swap accounting, iptables or systemd; images cannot be pulled again, so
// they are never collected; statuses are sent often because tests wait for them. CPU limits
// are not enforced: a guest's system calls cost many times a real machine's, and the 50m of
// an init container made it take 20 s instead of one.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: 0.0.0.0
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cpuCFSQuota: false
enforceNodeAllocatable: []
evictionHard: {memory.available: 10Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
failSwapOn: false
imageGCHighThresholdPercent: 100
makeIPTablesUtilChains: false
nodeStatusUpdateFrequency: 5s
readOnlyPort: 0
resolvConf: ""
serializeImagePulls: false
syncFrequency: 10s
volumePluginDir: /var/lib/kubelet/volumeplugins
`

// containerdConfig is version 2 of containerd 1.x. The plugin opt would write to /opt.
func containerdConfig(node string) string {
	return fmt.Sprintf(`version = 2
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_tcp_service = true
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/opt/cni/bin"
  conf_dir = "/host/%s/cni"
`, pauseImage, node)
}

// cniConfig connects pods by a bridge. Addresses are forgotten at a reboot like the pods'
// sandboxes.
func cniConfig(subnet string) string {
	return fmt.Sprintf(`{
  "cniVersion": "0.4.0", "name": "lab",
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
    "ipam": {
      "type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": %q}]],
      "routes": [{"dst": "0.0.0.0/0"}]
    }
  }]
}
`, subnet)
}
