package webhook

import (
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// files serves tls.crt and tls.key of another issuer, such as cert-manager, who replaces
// them in time and writes caBundle. They are read again when they change, and every 10 s;
// what cannot be read then is logged, and the certificate before it goes on.
type files struct {
	*certwatcher.CertWatcher
	cfg Config
	now func() time.Time
}

func newFiles(cfg Config, now func() time.Time) (*files, error) {
	w, err := certwatcher.New(filepath.Join(cfg.CertDir, servingKey), filepath.Join(cfg.CertDir, keyKey))
	if err != nil {
		return nil, fmt.Errorf("read %s and %s in --webhook-cert-dir %s: %w; mount the issuer's Secret there, or leave the flag out and the controller keeps a certificate of its own",
			servingKey, keyKey, cfg.CertDir, err)
	}
	return &files{w, cfg, now}, nil
}

// check says why no API server would accept what is served: then nobody is ready.
func (f *files) check(*http.Request) error {
	c, err := f.GetCertificate(nil)
	if err != nil {
		return fmt.Errorf("webhook certificate: %w", err)
	}
	from, to := c.Leaf.NotBefore, c.Leaf.NotAfter
	if now := f.now(); now.Before(from) || now.After(to) {
		return fmt.Errorf("webhook certificate in %s is good from %s to %s; have its issuer renew it", f.cfg.CertDir, from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	if err := c.Leaf.VerifyHostname(f.cfg.service()); err != nil {
		return fmt.Errorf("webhook certificate in %s: %w; have it issued for the DNS name %s", f.cfg.CertDir, err, f.cfg.service())
	}
	return nil
}
