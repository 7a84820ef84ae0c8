package scale

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/e2e/cluster"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
)

const (
	// Namespace is pillar's own.
	Namespace = "pillar-csi-system"
	// Controller is the name of pillar's container and of its account's suffix.
	Controller = "controller"

	protocolName = "nvme"
	account      = "pillar-csi-controller"
	deployment   = "pillar-csi-controller"
)

// Config says what runs.
type Config struct {
	Agents   int  // each with one store and one class of its name
	Sidecars bool // and kube-controller-manager's volume controllers

	// Args are flags appended to the manifest's, by container: to try other values.
	Args map[string][]string
}

// World is a control plane, agents, and the controller's pod as processes.
type World struct {
	*cluster.ControlPlane
	API    client.WithWatch // knows Kubernetes' and pillar's kinds
	Agents []*Agent         // agent-0, agent-1, ...

	dir        string
	containers map[string]*container
	running    errgroup.Group
	stop       context.CancelFunc
}

// volumeControllers are the parts of kube-controller-manager that bind, protect and remove
// claims and volumes.
var volumeControllers = []string{
	"persistentvolume-binder-controller", "persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
}

// Start starts everything, logs and state in dir, and returns when every class is Ready.
// The caller closes the world.
func Start(ctx context.Context, dir string, cfg Config) (*World, error) {
	w := &World{dir: dir, containers: map[string]*container{}}
	ctx, cancel := context.WithTimeout(ctx, startWait)
	defer cancel()
	if err := w.start(ctx, cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("start: %w; the controller's last words: %s", err, w.tail()), w.Close())
	}
	return w, nil
}

// startWait is how long everything may take to be there: 20 s on an idle machine.
const startWait = 2 * time.Minute

// tail answers the end of the controller's log.
func (w *World) tail() string {
	data, err := os.ReadFile(filepath.Join(w.dir, "pillar.log"))
	if err != nil {
		return err.Error()
	}
	return string(data[max(0, len(data)-2000):])
}

func (w *World) start(ctx context.Context, cfg Config) error {
	binary := filepath.Join(w.dir, "pillar")
	if err := cluster.BuildProduct(ctx, binary); err != nil {
		return err
	}
	programs, err := cluster.Programs(ctx)
	if err != nil {
		return err
	}
	var controllers []string
	if cfg.Sidecars {
		controllers = volumeControllers
	}
	if w.ControlPlane, err = cluster.StartControlPlane(ctx, w.dir, controllers...); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	if w.API, err = client.NewWithWatch(w.ControlPlane.Config, client.Options{Scheme: scheme, Log: logr.New(log.NullLogSink{})}); err != nil {
		return err
	}
	pod, err := w.install(ctx)
	if err != nil {
		return err
	}
	if err := w.pod(ctx, pod, cfg, binary, programs); err != nil {
		return err
	}
	return w.agents(ctx, cfg.Agents)
}

// install applies all of the base but the workloads, and answers the controller's.
func (w *World) install(ctx context.Context) (*appsv1.Deployment, error) {
	repo, err := artifacts.ModuleRoot(".")
	if err != nil {
		return nil, err
	}
	pod := &appsv1.Deployment{}
	err = w.ApplyEdited(ctx, func(o *unstructured.Unstructured) error {
		switch kind := o.GetKind(); {
		case kind == "Deployment" && o.GetName() == deployment:
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, pod); err != nil {
				return err
			}
			return cluster.ErrSkip
		case kind == "DaemonSet", kind == "ConfigMap", kind == "Service", strings.HasSuffix(kind, "WebhookConfiguration"):
			return cluster.ErrSkip // no kubelet runs them, no pod answers them
		}
		return nil
	}, filepath.Join(repo, "deploy/kustomize/base"))
	if err == nil && pod.Name == "" {
		err = fmt.Errorf("the base has no Deployment %s", deployment)
	}
	return pod, err
}

// pod starts the containers of the controller's pod with their own flags; only socket and
// ports are others.
func (w *World) pod(ctx context.Context, d *appsv1.Deployment, cfg Config, binary, programs string) error {
	kubeconfig, err := w.KubeconfigOf(ctx, Namespace, account)
	if err != nil {
		return err
	}
	webhook, err := freePort()
	if err != nil {
		return err
	}
	socket := "--csi-address=" + filepath.Join(w.dir, "csi.sock")
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.stop = stop
	for _, spec := range d.Spec.Template.Spec.Containers {
		c := &container{name: spec.Name, dir: w.dir, path: filepath.Join(programs, spec.Name)}
		for _, e := range spec.Env {
			if e.ValueFrom == nil {
				c.env = append(c.env, e.Name+"="+e.Value)
			}
		}
		c.env = append(c.env, "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+Namespace)
		c.args = append(slices.Clone(spec.Args), socket) // a flag given twice has its last value
		switch {
		case spec.Name == Controller:
			c.path = binary
			c.args = append(c.args, "--health-probe-address=127.0.0.1:0", "--metrics-address=127.0.0.1:0", "--webhook-port="+webhook)
		case spec.Name == "liveness-probe" || !cfg.Sidecars:
			continue
		default:
			c.args = append(c.args, "--kubeconfig="+kubeconfig)
		}
		c.args = append(c.args, cfg.Args[spec.Name]...)
		w.containers[spec.Name] = c
		w.running.Go(func() error { return c.run(running) })
	}
	return nil
}

// freePort answers a port of the loopback address nobody listened on a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

// agents starts n agents with a store and a class each, and waits for the classes.
func (w *World) agents(ctx context.Context, n int) error {
	objects := []client.Object{&v1alpha1.PillarProtocol{
		ObjectMeta: metav1.ObjectMeta{Name: protocolName},
		Spec:       v1alpha1.PillarProtocolSpec{Protocol: v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{Port: 4420, ACL: true}}},
	}}
	for i := range n {
		name := AgentName(i)
		a, err := StartAgent(filepath.Join(w.dir, "marks-"+name))
		if err != nil {
			return err
		}
		w.Agents = append(w.Agents, a)
		meta := metav1.ObjectMeta{Name: name}
		host, port, _ := net.SplitHostPort(a.Address)
		number, _ := strconv.Atoi(port)
		objects = append(objects,
			&v1alpha1.PillarAgent{ObjectMeta: meta, Spec: v1alpha1.PillarAgentSpec{
				External: &v1alpha1.ExternalAgent{Address: host, Port: int32(number)}}},
			&v1alpha1.PillarStore{ObjectMeta: meta, Spec: v1alpha1.PillarStoreSpec{
				AgentRef: name, Backend: v1alpha1.Backend{LVM: &v1alpha1.LVMBackend{VolumeGroup: Pool}}}},
			&v1alpha1.PillarStorageClass{ObjectMeta: meta, Spec: v1alpha1.PillarStorageClassSpec{
				StoreRef: name, ProtocolRef: protocolName}})
	}
	for _, o := range objects {
		if err := w.API.Create(ctx, o); err != nil {
			return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
		}
	}
	for i := range n {
		gvk := v1alpha1.GroupVersion.WithKind("PillarStorageClass")
		if err := w.WaitCondition(ctx, gvk, client.ObjectKey{Name: AgentName(i)}, v1alpha1.Ready, metav1.ConditionTrue); err != nil {
			return err
		}
	}
	return nil
}

// each runs act for 0 to n-1, many at a time.
func each(ctx context.Context, n int, act func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error { return act(ctx, i) })
	}
	return group.Wait()
}

// AgentName is the name of an agent, of its store and of its class.
func AgentName(i int) string { return fmt.Sprintf("agent-%d", i) }

// Kill ends a container's program with SIGKILL; it is started again.
func (w *World) Kill(container string) { w.containers[container].kill() }

// Starts answers how often a container was started.
func (w *World) Starts(container string) int {
	c := w.containers[container]
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.starts
}

// Usage answers what a container's program holds and has used.
func (w *World) Usage(container string) (Usage, error) { return w.containers[container].usage() }

// closeWait is how long the control plane may take to end; its data is thrown away.
const closeWait = 3 * time.Second

// Close ends everything.
func (w *World) Close() error {
	var err error
	if w.stop != nil {
		w.stop()
		err = w.running.Wait()
	}
	for _, a := range w.Agents {
		a.Stop()
	}
	if w.ControlPlane != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		err = errors.Join(err, w.Stop(ctx))
	}
	return err
}
