package cluster

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig answers a kubeconfig of one user for the API server at url.
func (p *pki) kubeconfig(user, url string) ([]byte, error) {
	cfg := api.NewConfig()
	cfg.Clusters["lab"] = &api.Cluster{Server: url, CertificateAuthorityData: p.ca}
	cfg.AuthInfos[user] = &api.AuthInfo{Token: token(user)}
	cfg.Contexts["lab"] = &api.Context{Cluster: "lab", AuthInfo: user}
	cfg.CurrentContext = "lab"
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return data, nil
}

// rest answers the client configuration of a user. QPS is unlimited: a test that waits for
// its own client's rate limit measures nothing.
func (p *pki) rest(user, url string) *rest.Config {
	return &rest.Config{
		Host: url, BearerToken: token(user), QPS: -1, WarningHandler: rest.NoWarnings{},
		TLSClientConfig: rest.TLSClientConfig{CAData: p.ca},
	}
}
