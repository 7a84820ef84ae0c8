// Package controller is `pillar controller`: the only process that decides. It serves the
// CSI Controller service to the sidecars beside it and reconciles pillar's objects; it
// never touches a disk.
//
//	CSI call -> Server -> settings (what) -> ledger (record, generation) -> agent (act)
//	watch    -> reconcile (one reconciler per kind)               -> agent (health, exports)
//
// Every replica serves CSI; reconcilers run on the leader. Correctness rests on neither
// but on the ledger's compare-and-swap and the agents' fencing (block.md B-138).
package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/zapr"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/agents"
	"github.com/pillar-csi/pillar/roles/controller/reconcile"
	"github.com/pillar-csi/pillar/roles/controller/webhook"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/roles/telemetry"
)

// leaseName is the leader's lease; dashboards match on it.
const leaseName = "bf3a431e.pillar-csi.bhyoo.com"

// A leader that cannot renew exits and cuts off the CSI calls it serves, so a busy API
// server gets more time than client-go's 15 s. A clean hand-over is not slower: the lease is
// released. A crashed leader's successor waits for leaseDuration; CSI never waits for either.
const (
	leaseDuration = 30 * time.Second
	renewDeadline = 25 * time.Second
	retryPeriod   = 5 * time.Second
)

// Config of the controller.
type Config struct {
	CSIAddress     string // socket path
	Namespace      string // pillar's own: lease and, later, secrets
	LeaderElect    bool
	HealthAddress  string
	MetricsAddress string
	Webhook        webhook.Config // its Namespace is the one above
	LogLevel       string

	period time.Duration // between two passes over all exports; 0: 30 s. Tests are impatient
}

// Command answers `pillar controller`.
func Command() *cobra.Command {
	var cfg Config
	cmd := &cobra.Command{
		Use:   "controller",
		Short: "Serve the CSI controller and reconcile pillar's objects",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := telemetry.NewLogger(cfg.LogLevel)
			if err != nil {
				return err
			}
			rest, err := ctrl.GetConfig()
			if err != nil {
				return fmt.Errorf("load Kubernetes configuration: %w", err)
			}
			return Run(cmd.Context(), rest, cfg, logger)
		},
	}
	f := cmd.Flags()
	f.StringVar(&cfg.CSIAddress, "csi-address", "/csi/csi.sock", "socket of the CSI service")
	f.StringVar(&cfg.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "namespace pillar is installed in")
	f.BoolVar(&cfg.LeaderElect, "leader-elect", false, "reconcile only while holding the lease "+leaseName)
	f.StringVar(&cfg.HealthAddress, "health-probe-address", ":8081", "address of /healthz and /readyz")
	f.StringVar(&cfg.MetricsAddress, "metrics-address", ":8080", "address of /metrics, or 0 for none")
	f.IntVar(&cfg.Webhook.Port, "webhook-port", 0, "port of the admission webhooks; 0 serves none")
	f.StringVar(&cfg.Webhook.Name, "webhook-name", "pillar-csi", "name of both webhook configurations; NAME-webhook is the Service, NAME-webhook-cert the Secret")
	f.StringVar(&cfg.Webhook.CertDir, "webhook-cert-dir", "", "folder with tls.crt and tls.key of another issuer, who also writes caBundle; empty: the controller keeps a CA of its own")
	f.StringVar(&cfg.LogLevel, "zap-log-level", "info", "debug, info, warn or error")
	return cmd
}

// Scheme knows the kinds the controller reads and writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)); err != nil {
		return nil, fmt.Errorf("register kinds: %w", err)
	}
	return s, nil
}

// Run serves CSI and reconciles until ctx ends.
func Run(ctx context.Context, cfg *rest.Config, c Config, logger *zap.Logger) error {
	cfg = WithCrashpoints(cfg)
	cfg.QPS = -1 // the API server's own fairness paces us; pauses here only delay pods
	logs := zapr.NewLogger(logger)
	log.SetLogger(logs)
	mgr, direct, err := newManager(cfg, c)
	if err != nil {
		return err
	}
	pool := &agents.Pool{}
	defer pool.Close()
	reconcilers, err := reconcile.Setup(mgr, direct, pool, reconcile.Config{Namespace: c.Namespace, Period: c.period})
	if err != nil {
		return fmt.Errorf("set up reconcilers: %w", err)
	}
	server := NewServer(direct, c.Namespace, pool, reconcilers.Kick, logger.Named("csi"))
	if err := reconcile.SetupReaper(mgr, direct, server.Reap); err != nil {
		return fmt.Errorf("set up reaper: %w", err)
	}
	c.Webhook.Namespace = c.Namespace
	if err := webhook.Setup(mgr, direct, c.Webhook); err != nil {
		return fmt.Errorf("set up webhooks: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return mgr.Start(ctx) })
	group.Go(func() error { return server.Serve(ctx, c.CSIAddress) })
	return group.Wait()
}

// newManager answers the manager and a client without a cache.
func newManager(cfg *rest.Config, c Config) (manager.Manager, client.Client, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, nil, err
	}
	anyName := true // a test runs several managers in one process
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                c.LeaderElect,
		LeaderElectionID:              leaseName,
		LeaderElectionNamespace:       c.Namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 new(leaseDuration),
		RenewDeadline:                 new(renewDeadline),
		RetryPeriod:                   new(retryPeriod),
		HealthProbeBindAddress:        c.HealthAddress,
		Metrics:                       metricsserver.Options{BindAddress: c.MetricsAddress},
		Cache:                         lean(),
		Controller:                    config.Controller{SkipNameValidation: &anyName},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make manager: %w", err)
	}
	if err := errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", inStep(mgr.GetCache()))); err != nil {
		return nil, nil, fmt.Errorf("add health checks: %w", err)
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, nil, fmt.Errorf("make client: %w", err)
	}
	return mgr, direct, nil
}

// syncWait is what a probe gives the caches; kubelet's own limit is one second.
const syncWait = 500 * time.Millisecond

// inStep is nil once every kind that is watched has arrived: with one right missing nothing
// is reconciled, which a rollout must show.
func inStep(c cache.Cache) healthz.Checker {
	return func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), syncWait)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("a kind cannot be watched yet; the log says which right or resource is missing")
		}
		return nil
	}
}

// lean keeps in memory only what somebody reads: with 5,000 volumes the bookkeeping of
// who wrote which field is a third of each record, and a node lists its every image.
func lean() cache.Options {
	strip := cache.TransformStripManagedFields()
	return cache.Options{
		DefaultTransform: strip,
		ByObject: map[client.Object]cache.ByObject{&corev1.Node{}: {Transform: func(obj any) (any, error) {
			if node, ok := obj.(*corev1.Node); ok {
				node.Status = corev1.NodeStatus{Addresses: node.Status.Addresses}
				node.Spec = corev1.NodeSpec{}
			}
			return strip(obj)
		}}},
	}
}

// Serve answers CSI calls on the socket until ctx ends.
func (s *Server) Serve(ctx context.Context, address string) error {
	return csiserve.Run(ctx, csiserve.Config{
		Address:      address,
		Name:         v1alpha1.DriverName,
		Version:      telemetry.Version,
		Volume:       volumeName,
		Capabilities: pluginCapabilities(),
	}, s.log, func(r grpc.ServiceRegistrar) { csi.RegisterControllerServer(r, s) })
}

// pluginCapabilities names the services and that volumes grow while they are in use;
// topology is reported by the node plugin.
func pluginCapabilities() []*csi.PluginCapability {
	var caps []*csi.PluginCapability
	for _, t := range []csi.PluginCapability_Service_Type{
		csi.PluginCapability_Service_CONTROLLER_SERVICE,
		csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		caps = append(caps, &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: t}}})
	}
	return append(caps, &csi.PluginCapability{Type: &csi.PluginCapability_VolumeExpansion_{
		VolumeExpansion: &csi.PluginCapability_VolumeExpansion{Type: csi.PluginCapability_VolumeExpansion_ONLINE},
	}})
}
