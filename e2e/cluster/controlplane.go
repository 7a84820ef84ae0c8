package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// serviceRange holds the addresses of Services; its first one is the API server's.
const serviceRange = "10.96.0.0/16"

// serviceAddress is where pods reach the API server.
var serviceAddress = net.IPv4(10, 96, 0, 1)

// startWait is how long the control plane may take until it answers: 4 s on an idle
// machine, 12 s measured on a loaded one.
const startWait = 90 * time.Second

// ControlPlane is a running API server with its etcd and, in a whole cluster, the
// controller manager and the scheduler.
type ControlPlane struct {
	Config     *rest.Config         // of a user in system:masters
	Client     kubernetes.Interface // typed, of Kubernetes' own kinds
	Objects    client.WithWatch     // of any kind
	Kubeconfig string               // path of a file with the same access

	dynamic   dynamic.Interface
	dir       string
	keys      *pki
	layout    layout
	processes []*Process // in the order they were started
}

// layout says where the control plane listens.
type layout struct {
	bind  net.IP // of the API server
	reach net.IP // address in kubeconfigs
	port  int    // of the API server
	etcd  [2]int // client and peer port on 127.0.0.1
	nodes []string
	all   bool // also controller manager and scheduler

	controllers []string // without all: what the controller manager runs; none: it does not run
}

func (l layout) url() string {
	return "https://" + net.JoinHostPort(l.reach.String(), strconv.Itoa(l.port))
}

// StartControlPlane starts etcd and kube-apiserver on free ports of the loopback address
// for a test that needs a real API server and no nodes, and kube-controller-manager with
// the named controllers if there are any. State, keys and logs go to dir.
// It returns once the API server is ready; the caller stops it.
func StartControlPlane(ctx context.Context, dir string, controllers ...string) (*ControlPlane, error) {
	cache, repo, err := openCache()
	if err != nil {
		return nil, err
	}
	bin, err := Tools(ctx, cache, repo)
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	loopback := net.IPv4(127, 0, 0, 1)
	c, err := newControlPlane(dir, layout{
		bind: loopback, reach: loopback, port: ports[0], etcd: [2]int{ports[1], ports[2]},
		controllers: controllers,
	})
	if err != nil {
		return nil, err
	}
	return c, c.start(ctx, bin)
}

// newControlPlane writes keys and kubeconfigs of a control plane that start will run.
func newControlPlane(dir string, at layout) (*ControlPlane, error) {
	c := &ControlPlane{dir: dir, layout: at}
	if err := c.prepare(); err != nil {
		return nil, fmt.Errorf("prepare control plane: %w", err)
	}
	return c, nil
}

// start runs the programs of folder bin and returns when the API server is ready. After
// an error nothing runs.
func (c *ControlPlane) start(ctx context.Context, bin string) error {
	if err := c.startAll(ctx, bin); err != nil {
		return errors.Join(fmt.Errorf("start control plane: %w", err), c.Stop(ctx))
	}
	return nil
}

func (c *ControlPlane) startAll(ctx context.Context, bin string) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := c.run(bin, "etcd", c.etcdFlags()); err != nil {
		return err
	}
	if err := c.run(bin, "kube-apiserver", c.apiserverFlags()); err != nil {
		return err
	}
	if c.layout.all || len(c.layout.controllers) > 0 {
		if err := c.run(bin, "kube-controller-manager", c.controllerFlags()); err != nil {
			return err
		}
	}
	if c.layout.all {
		if err := c.run(bin, "kube-scheduler", c.schedulerFlags()); err != nil {
			return err
		}
	}
	return c.ready(ctx)
}

// settled returns when pods can be made in the namespace default: the controller manager
// has given it its ServiceAccount.
func (c *ControlPlane) settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	return c.Until(ctx, account, func() (bool, error) { return true, nil })
}

// prepare writes keys and kubeconfigs.
func (c *ControlPlane) prepare() error {
	hosts := []net.IP{net.IPv4(127, 0, 0, 1), serviceAddress, c.layout.reach}
	var err error
	if c.keys, err = newPKI(filepath.Join(c.dir, "pki"), hosts, c.layout.nodes); err != nil {
		return err
	}
	for _, user := range []string{userAdmin, userController, userScheduler} {
		data, err := c.keys.kubeconfig(user, c.layout.url())
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.kubeconfig(user), data, 0o600); err != nil {
			return fmt.Errorf("kubeconfig of %s: %w", user, err)
		}
	}
	c.Kubeconfig = c.kubeconfig(userAdmin)
	c.Config = c.keys.rest(userAdmin, c.layout.url())
	return c.clients()
}

func (c *ControlPlane) clients() (err error) {
	if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfig(c.Config); err != nil {
		return err
	}
	c.Objects, err = client.NewWithWatch(c.Config, client.Options{Log: logr.New(log.NullLogSink{})})
	return err
}

func (c *ControlPlane) kubeconfig(user string) string {
	return filepath.Join(c.dir, token(user)+".kubeconfig")
}

func (c *ControlPlane) run(bin, name string, flags []string) error {
	// Memory is there, time is not: collecting less often saves a sixth of the API server's.
	p, err := StartProcess(c.dir, filepath.Join(bin, name), []string{"GOGC=400"}, flags...)
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

// ready returns when the API server answers ok on /readyz, or with the log of a program
// that ended. There is nothing to watch before the first answer, so it asks again.
func (c *ControlPlane) ready(ctx context.Context) error {
	ask := time.NewTicker(50 * time.Millisecond)
	defer ask.Stop()
	for {
		body, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		if err == nil && string(body) == "ok" {
			return nil
		}
		for _, p := range c.processes {
			if err := p.failed(); err != nil {
				return err
			}
		}
		select {
		case <-ask.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for the API server (log in %s): %w", c.dir, errors.Join(ctx.Err(), err))
		}
	}
}

// Stop ends the programs in the order that is clean and fast: those that use the API
// server, the API server, then etcd. kube-apiserver hangs when etcd goes first.
func (c *ControlPlane) Stop(ctx context.Context) error {
	var clients errgroup.Group
	for i := len(c.processes) - 1; i >= 2; i-- {
		clients.Go(func() error { c.processes[i].Stop(ctx); return nil })
	}
	clients.Wait()
	for i := min(len(c.processes), 2) - 1; i >= 0; i-- {
		c.processes[i].Stop(ctx)
	}
	c.processes = nil
	return nil
}

// freePorts answers ports of the loopback address nobody listened on a moment ago.
func freePorts(n int) ([]int, error) {
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close() // held until all are found, so that they differ
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out, nil
}
