package cluster

import (
	"context"
	"fmt"
	"os"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// KubeconfigOf writes a kubeconfig with a token of a ServiceAccount, good for an hour, and
// answers its path: a program run with it has the rights its pod would have.
func (c *ControlPlane) KubeconfigOf(ctx context.Context, namespace, account string) (string, error) {
	issued, err := c.Client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token of ServiceAccount %s/%s: %w", namespace, account, err)
	}
	data, err := c.keys.write(account, issued.Status.Token, c.layout.url())
	if err != nil {
		return "", err
	}
	path := c.kubeconfig(account)
	return path, os.WriteFile(path, data, 0o600)
}

// kubeconfig answers a kubeconfig of one user for the API server at url.
func (p *pki) kubeconfig(user, url string) ([]byte, error) { return p.write(user, token(user), url) }

func (p *pki) write(user, token, url string) ([]byte, error) {
	cfg := api.NewConfig()
	cfg.Clusters["lab"] = &api.Cluster{Server: url, CertificateAuthorityData: p.ca}
	cfg.AuthInfos[user] = &api.AuthInfo{Token: token}
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
