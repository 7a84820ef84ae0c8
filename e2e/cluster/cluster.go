package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"github.com/pillar-csi/pillar/e2e/lab"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// bridgeAddress is the host's address on the lab's bridge.
var bridgeAddress = net.IPv4(10, 66, 0, 1)

// Config says what a cluster is. The zero value is storage-1 with one spare disk of 4 GiB
// and two workers.
type Config struct {
	Workers      int      // worker-1, worker-2, ...; 0 means 2
	StorageDisks []string // of storage-1, as lab.GuestSpec.Disks; nil means one of 4GiB

	// Guest may change what is booted.
	Guest func(*lab.GuestSpec)

	Log io.Writer // one line per step with its time; nil means os.Stderr
}

// Cluster is a control plane with a kubelet in every guest.
type Cluster struct {
	*ControlPlane
	Kubectl string // path of the program, for people
	Pillar  string // path of the pillar binary in every guest; its name holds its hash

	log       io.Writer
	begun     time.Time
	lab       *lab.Lab
	artifacts *artifactSet
	template  string
	nodes     []*node
}

// Start boots the guests, starts the control plane and returns when every node is Ready.
// It runs inside the lab's namespaces. The caller closes the cluster, then the lab.
func Start(ctx context.Context, l *lab.Lab, cfg Config) (*Cluster, error) {
	set, err := build(ctx)
	if errors.Is(err, artifacts.ErrMissing) {
		return nil, fmt.Errorf("start cluster: run `make cluster-build` first, outside of the lab: %w", err)
	}
	if err != nil {
		return nil, err
	}
	c := &Cluster{lab: l, artifacts: set, Kubectl: filepath.Join(set.tools, "kubectl"), log: cfg.Log, begun: time.Now()}
	if c.log == nil {
		c.log = os.Stderr
	}
	c.nodes = c.plan(cfg)
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// plan names the nodes: storage-1 at 10.66.0.11, workers from 10.66.0.21. Storage and
// workers alternate between the host's CPUs.
func (c *Cluster) plan(cfg Config) []*node {
	disks, workers := cfg.StorageDisks, cfg.Workers
	if disks == nil {
		disks = []string{"4GiB"}
	}
	if workers == 0 {
		workers = 2
	}
	nodes := []*node{newNode(lab.GuestSpec{Name: "storage-1", Address: "10.66.0.11", MemoryMB: 512, Disks: disks}, 11)}
	for i := 1; i <= workers; i++ {
		nodes = append(nodes, newNode(lab.GuestSpec{Name: fmt.Sprintf("worker-%d", i),
			Address: fmt.Sprintf("10.66.0.%d", 20+i), CPU: i, MemoryMB: 768}, 20+i))
	}
	for _, n := range nodes {
		if cfg.Guest != nil {
			cfg.Guest(&n.spec)
		}
	}
	return nodes
}

func (c *Cluster) start(ctx context.Context) error {
	var err error
	if c.template, err = c.buildTemplate(ctx); err != nil {
		return err
	}
	if c.Pillar, err = c.showPillar(); err != nil {
		return err
	}
	var names []string
	for _, n := range c.nodes {
		names = append(names, n.spec.Name)
	}
	dir := filepath.Join(c.lab.HostDir, stateDir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	c.ControlPlane, err = newControlPlane(dir, layout{
		bind: net.IPv4zero, reach: bridgeAddress, port: 443, etcd: [2]int{2379, 2380}, nodes: names, all: true,
	})
	if err != nil {
		return err
	}
	if err := c.routes(); err != nil {
		return err
	}
	return c.startAll(ctx)
}

// startAll starts everything at once; kubelets wait for the API server.
func (c *Cluster) startAll(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	serves := make(chan struct{})
	all.Go(func() error {
		if err := c.ControlPlane.start(ctx, c.artifacts.tools); err != nil {
			return err
		}
		c.tell("the API server is ready")
		close(serves)
		return c.settled(ctx)
	})
	for _, n := range c.nodes {
		all.Go(func() error {
			if err := c.boot(ctx, n); err != nil {
				return err
			}
			c.tell(n.spec.Name + " runs containerd")
			select {
			case <-serves:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := c.join(ctx, n, ""); err != nil {
				return err
			}
			c.tell(n.spec.Name + " is Ready")
			return nil
		})
	}
	return all.Wait()
}

func (c *Cluster) tell(what string) {
	fmt.Fprintf(c.log, "cluster: %s after %.1f s\n", what, time.Since(c.begun).Seconds())
}

// Node answers a node's guest. An unknown name is a mistake in the test and panics.
func (c *Cluster) Node(name string) *lab.Guest { return c.node(name).guest }

func (c *Cluster) node(name string) *node {
	var names []string
	for _, n := range c.nodes {
		if n.spec.Name == name {
			return n
		}
		names = append(names, n.spec.Name)
	}
	panic(fmt.Sprintf("cluster: no node %s, there are %s", name, strings.Join(names, ", ")))
}

// KillNode ends a node as a power cut would.
func (c *Cluster) KillNode(name string) error { return c.Node(name).Kill() }

// StartNode boots a killed node again and returns when its new kubelet has made it Ready.
func (c *Cluster) StartNode(ctx context.Context, name string) error {
	return c.again(ctx, name, c.Node(name).Start)
}

// RebootNode kills a node after syncing its disks, boots it again, and returns when its new
// kubelet has made it Ready.
func (c *Cluster) RebootNode(ctx context.Context, name string) error {
	return c.again(ctx, name, c.Node(name).Reboot)
}

func (c *Cluster) again(ctx context.Context, name string, boot func(context.Context) error) error {
	n := c.node(name)
	before := &corev1.Node{}
	before.Name = name
	if err := c.Until(ctx, before, func() (bool, error) { return true, nil }); err != nil {
		return err
	}
	if err := boot(ctx); err != nil {
		return fmt.Errorf("boot node %s: %w", name, err)
	}
	if err := c.runtime(ctx, n); err != nil {
		return err
	}
	return c.join(ctx, n, before.Status.NodeInfo.BootID)
}

// closeWait is how long the control plane may take to end cleanly at Close. Its data is
// thrown away, and kube-apiserver waits for connections of nodes that are dead already.
const closeWait = 3 * time.Second

// Close kills the nodes and then stops the control plane, unless the lab is kept.
func (c *Cluster) Close(ctx context.Context) error {
	if os.Getenv(namespace.KeepVar) == "1" {
		return nil
	}
	var all []error
	for _, n := range c.nodes {
		if n.guest != nil {
			all = append(all, n.guest.Kill())
		}
	}
	if c.ControlPlane != nil {
		ctx, cancel := context.WithTimeout(ctx, closeWait)
		defer cancel()
		all = append(all, c.Stop(ctx))
	}
	return errors.Join(all...)
}
