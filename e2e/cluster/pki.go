package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// pki is a folder with the cluster's keys: ca.crt, server.crt and server.key of the API
// server, sa.key and sa.pub for ServiceAccount tokens, and tokens.csv with a static token
// for every client outside a pod.
type pki struct {
	dir string
	ca  []byte // PEM
}

// The users with a static token. RBAC's bootstrap roles name all but the first; admin is
// in system:masters. A node's user is system:node:NAME in system:nodes.
const (
	userAdmin      = "admin"
	userController = "system:kube-controller-manager"
	userScheduler  = "system:kube-scheduler"
)

// newPKI writes a new set of keys into dir. hosts are the addresses clients use.
func newPKI(dir string, hosts []net.IP, nodes []string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("cluster keys: %w", err)
	}
	p := &pki{dir: dir}
	if err := p.certificates(hosts); err != nil {
		return nil, fmt.Errorf("cluster certificates: %w", err)
	}
	if err := p.serviceAccountKey(); err != nil {
		return nil, fmt.Errorf("cluster ServiceAccount key: %w", err)
	}
	if err := p.tokens(nodes); err != nil {
		return nil, fmt.Errorf("cluster tokens: %w", err)
	}
	return p, nil
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

func (p *pki) certificates(hosts []net.IP) error {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "pillar-lab"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	server := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: hosts,
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, server, ca, &key.PublicKey, caKey)
	if err != nil {
		return err
	}
	p.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: serverDER})
	if err := os.WriteFile(p.path("ca.crt"), p.ca, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(p.path("server.crt"), cert, 0o644); err != nil {
		return err
	}
	return writeKey(p.path("server.key"), key)
}

func (p *pki) serviceAccountKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	block := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public})
	if err := os.WriteFile(p.path("sa.pub"), block, 0o644); err != nil {
		return err
	}
	return writeKey(p.path("sa.key"), key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// tokens writes the file of kube-apiserver's --token-auth-file: token,user,uid,"groups".
func (p *pki) tokens(nodes []string) error {
	var b strings.Builder
	add := func(user, group string) {
		fmt.Fprintf(&b, "%s,%s,%s,%q\n", token(user), user, user, group)
	}
	add(userAdmin, "system:masters")
	add(userController, "system:authenticated")
	add(userScheduler, "system:authenticated")
	for _, n := range nodes {
		add("system:node:"+n, "system:nodes")
	}
	return os.WriteFile(p.path("tokens.csv"), []byte(b.String()), 0o600)
}

// token answers the static token of a user. It is no secret: the network it is good for
// is the lab's own.
func token(user string) string { return "lab-" + strings.ReplaceAll(user, ":", "-") }
