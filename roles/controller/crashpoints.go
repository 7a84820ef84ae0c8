package controller

import (
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/pillar-csi/pillar/storage/host/crashpoint"
)

// WithCrashpoints marks every write to the API server as an effect. In the shipped binary
// the marks are empty.
func WithCrashpoints(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return marked{next} })
	return cfg
}

type marked struct{ next http.RoundTripper }

func (m marked) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return m.next.RoundTrip(req)
	}
	what := req.Method + " " + req.URL.Path
	crashpoint.Before(crashpoint.APIWrite, what)
	resp, err := m.next.RoundTrip(req)
	crashpoint.After(crashpoint.APIWrite, what)
	return resp, err
}
