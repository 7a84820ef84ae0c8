package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	server "sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

// Config of the webhooks.
type Config struct {
	Port      int    // 0: no webhooks
	Host      string // address to listen on and a name in the certificate; empty: all, and none
	CertDir   string // holds tls.crt and tls.key of another issuer; empty: Keeper's
	Name      string // of both configurations; begins the names of Service and Secret
	Namespace string // of Service and Secret, and of CHAP Secrets
}

// service is the DNS name the API server calls.
func (c Config) service() string { return c.Name + "-webhook." + c.Namespace + ".svc" }

// secret is the name of the Secret with CA and certificate.
func (c Config) secret() string { return c.Name + "-webhook-cert" }

// Setup adds the webhooks to the manager; direct reads without a cache, so that a class
// applied right after its store is judged by it. The manager is ready once the webhooks
// can be called: they serve, with a certificate the configurations trust.
func Setup(mgr manager.Manager, direct client.Client, cfg Config) error {
	if cfg.Port == 0 {
		return nil
	}
	if cfg.Name == "" || cfg.Namespace == "" {
		return errors.New("webhooks need the name of their configurations and a namespace; set --webhook-name and --namespace")
	}
	certificate, err := setupCertificate(mgr, direct, cfg)
	if err != nil {
		return err
	}
	s := server.NewServer(server.Options{
		Host: cfg.Host, Port: cfg.Port,
		TLSOpts: []func(*tls.Config){func(c *tls.Config) { c.GetCertificate = certificate }},
	})
	for path, handler := range handlers(direct, cfg.Namespace) {
		s.Register(path, handler)
	}
	if err := mgr.Add(s); err != nil {
		return fmt.Errorf("add webhook server: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook", s.StartedChecker()); err != nil {
		return fmt.Errorf("add webhook check: %w", err)
	}
	return nil
}

// setupCertificate adds to the manager what keeps the certificate, and answers it.
func setupCertificate(mgr manager.Manager, direct client.Client, cfg Config) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if cfg.CertDir == "" {
		k := &keeper{api: direct, cfg: cfg, now: time.Now, log: mgr.GetLogger().WithName("webhook")}
		if err := mgr.Add(k); err != nil {
			return nil, fmt.Errorf("add certificate keeper: %w", err)
		}
		return k.certificate, nil
	}
	f, err := newFiles(cfg, time.Now)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(mgr.Add(f), mgr.AddReadyzCheck("webhook-certificate", f.check)); err != nil {
		return nil, fmt.Errorf("add certificate files: %w", err)
	}
	return f.GetCertificate, nil
}

// handlers answers what is served under which path; deploy/kustomize/base/webhook.yaml
// names the same paths.
func handlers(api client.Client, namespace string) map[string]http.Handler {
	c := checks{api: api, namespace: namespace}
	return map[string]http.Handler{
		"/validate/pillaragents":         admission.WithValidator(api.Scheme(), validator[*v1alpha1.PillarAgent]{"PillarAgent", c.agent}),
		"/validate/pillarstores":         admission.WithValidator(api.Scheme(), validator[*v1alpha1.PillarStore]{"PillarStore", c.store}),
		"/validate/pillarprotocols":      admission.WithValidator(api.Scheme(), validator[*v1alpha1.PillarProtocol]{"PillarProtocol", c.protocol}),
		"/validate/pillarstorageclasses": admission.WithValidator(api.Scheme(), validator[*v1alpha1.PillarStorageClass]{"PillarStorageClass", c.class}),
		"/default/pillarstorageclasses":  undecoded(admission.WithDefaulter(api.Scheme(), defaulter{api})),
	}
}

// undecoded lets an object pass that the webhook cannot decode. It is asked before the
// schema, which then names every field of a wrong type by its path.
func undecoded(w *admission.Webhook) *admission.Webhook {
	next := w.Handler
	w.Handler = admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		resp := next.Handle(ctx, req)
		if resp.Result != nil && resp.Result.Code == http.StatusBadRequest {
			return admission.Allowed("left to the schema")
		}
		return resp
	})
	return w
}
