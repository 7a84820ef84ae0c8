package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillar-csi/pillar/e2e/lab"
)

// joinWait is how long a started kubelet may take to become Ready: 2 s idle.
const joinWait = 90 * time.Second

// node is a guest with a kubelet.
type node struct {
	spec   lab.GuestSpec
	subnet string // of its pods
	guest  *lab.Guest
}

func newNode(spec lab.GuestSpec, n int) *node {
	spec.Modules = []string{"overlay", "bridge", "veth"}
	return &node{spec: spec, subnet: fmt.Sprintf("10.244.%d.0/24", n)}
}

// routes lets the control plane and the host reach every pod subnet.
func (c *Cluster) routes() error {
	for _, n := range c.nodes {
		_, subnet, err := net.ParseCIDR(n.subnet)
		if err != nil {
			return err
		}
		err = netlink.RouteReplace(&netlink.Route{Dst: subnet, Gw: net.ParseIP(n.spec.Address)})
		if err != nil {
			return fmt.Errorf("route %s by %s: %w", n.subnet, n.spec.Address, err)
		}
	}
	return nil
}

// boot boots the node's guest and starts containerd.
func (c *Cluster) boot(ctx context.Context, n *node) error {
	if err := c.configure(n); err != nil {
		return fmt.Errorf("configure node %s: %w", n.spec.Name, err)
	}
	n.spec.VarBacking = c.template
	n.spec.ShareRO = map[string]string{"/lab/bin": c.binDir()}
	var err error
	if n.guest, err = c.lab.Boot(ctx, n.spec); err != nil {
		return fmt.Errorf("boot node %s: %w", n.spec.Name, err)
	}
	return c.runtime(ctx, n)
}

// configure writes the node's configuration where its guest sees it as /host/NAME.
func (c *Cluster) configure(n *node) error {
	dir := filepath.Join(c.lab.HostDir, n.spec.Name)
	if err := os.MkdirAll(filepath.Join(dir, "cni"), 0o755); err != nil {
		return err
	}
	access, err := c.keys.kubeconfig("system:node:"+n.spec.Name, c.layout.url())
	if err != nil {
		return err
	}
	for name, data := range map[string]string{
		"kubeconfig":          string(access),
		"kubelet.yaml":        kubeletConfig,
		"containerd.toml":     containerdConfig(n.spec.Name),
		"cni/10-lab.conflist": cniConfig(n.subnet),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// supervise starts a program that init would restart; its log is in /var/log.
const supervise = `supervise() { name=$1; shift
	setsid bash -c 'while :; do "$@"; echo "ended with $?, again in 1 s"; sleep 1; done' $name "$@" </dev/null >>/var/log/$name.log 2>&1 &
}
`

// runtime starts containerd and returns when its socket is there. It also routes to the
// pods of the other nodes.
func (c *Cluster) runtime(ctx context.Context, n *node) error {
	script := "set -e\n" + supervise
	for _, other := range c.nodes {
		if other != n {
			script += fmt.Sprintf("ip route replace %s via %s\n", other.subnet, other.spec.Address)
		}
	}
	if slices.Contains(n.spec.Modules, "zfs") { // as zfs-import-scan.service
		script += "zpool import -a -o cachefile=none" + scan(n.guest.Disks) + "\n"
	}
	script += fmt.Sprintf("supervise containerd containerd --config /host/%s/containerd.toml\n", n.spec.Name) +
		"until [ -S /run/containerd/containerd.sock ]; do sleep 0.05; done\n"
	if _, err := n.guest.Exec(ctx, script); err != nil {
		return fmt.Errorf("start containerd on %s: %w", n.spec.Name, err)
	}
	return nil
}

// scan are zpool's options to look for pools on these disks only, not in zvols.
func scan(disks []string) string {
	var options string
	for _, disk := range disks {
		options += " -d " + disk
	}
	return options
}

// join starts the kubelet and returns when it has made the node Ready in a boot other than
// the given one.
func (c *Cluster) join(ctx context.Context, n *node, before string) error {
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	argv := []string{
		"/cache/" + filepath.Base(c.artifacts.tools) + "/kubelet",
		"--config=/host/" + n.spec.Name + "/kubelet.yaml", "--kubeconfig=/host/" + n.spec.Name + "/kubeconfig",
		"--hostname-override=" + n.spec.Name, "--node-ip=" + n.spec.Address, "--v=2",
	}
	if _, err := n.guest.Exec(ctx, supervise+"supervise kubelet "+strings.Join(argv, " ")); err != nil {
		return fmt.Errorf("start kubelet on %s: %w", n.spec.Name, err)
	}
	object := &corev1.Node{}
	object.Name = n.spec.Name
	err := c.Until(ctx, object, func() (bool, error) {
		return nodeReady(object) == corev1.ConditionTrue && object.Status.NodeInfo.BootID != before, nil
	})
	if err != nil {
		return errors.Join(err, c.kubeletLog(n))
	}
	return nil
}

// kubeletLog is an error with the end of the kubelet's log.
func (c *Cluster) kubeletLog(n *node) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // the caller's has ended
	defer cancel()
	log, err := n.guest.Exec(ctx, "tail -n 20 /var/log/kubelet.log /var/log/containerd.log")
	if err != nil {
		return fmt.Errorf("log of the kubelet on %s: %w", n.spec.Name, err)
	}
	return fmt.Errorf("log of the kubelet on %s: %s", n.spec.Name, log)
}
