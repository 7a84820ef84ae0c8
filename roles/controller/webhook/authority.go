package webhook

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Keys of the Secret.
const (
	bundleKey  = "ca.crt"
	caKeyKey   = "ca.key"
	servingKey = "tls.crt"
	keyKey     = "tls.key"
)

// makeCA makes a certificate authority of its own.
func makeCA(now time.Time) (*x509.Certificate, crypto.Signer, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "pillar-csi webhook CA"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(caLifetime),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	return sign(template, nil, nil)
}

// makeServing makes the certificate of the webhook server: for a DNS name, and for a host
// if it is not empty.
func makeServing(now time.Time, name, host string, ca *x509.Certificate, caKey any) (*x509.Certificate, crypto.Signer, error) {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    []string{name},
		NotBefore:   now.Add(-backdate),
		NotAfter:    now.Add(servingLifetime), // far before the CA's end, see the lifetimes
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	}
	return sign(template, ca, caKey)
}

// sign makes a key and a certificate for it; a nil parent signs itself.
func sign(template, parent *x509.Certificate, parentKey any) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, fmt.Errorf("make serial number: %w", err)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate %q: %w", template.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, fmt.Errorf("read back certificate %q: %w", template.Subject.CommonName, err)
	}
	return cert, key, nil
}

// parse reads a Secret. What is absent or damaged is left out, and the error says what was
// damaged; it never holds a key.
func parse(data map[string][]byte) (s state, damage error) {
	if len(data) == 0 {
		return state{}, nil
	}
	for rest := data[bundleKey]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		ca, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			damage = errors.Join(damage, fmt.Errorf("%s: a certificate cannot be read: %w", bundleKey, err))
			continue
		}
		s.bundle = append(s.bundle, ca)
	}
	if len(s.bundle) > 0 {
		if pair, err := tls.X509KeyPair(encodeCerts(s.bundle[0]), data[caKeyKey]); err != nil {
			damage = errors.Join(damage, fmt.Errorf("%s does not belong to %s", caKeyKey, bundleKey))
		} else {
			s.caKey = pair.PrivateKey
		}
	}
	if len(data[servingKey]) == 0 {
		return s, damage
	}
	pair, err := tls.X509KeyPair(data[servingKey], data[keyKey])
	if err != nil {
		return s, errors.Join(damage, fmt.Errorf("%s and %s are no pair", servingKey, keyKey))
	}
	s.serving, s.key = pair.Leaf, pair.PrivateKey
	return s, damage
}

// encode is the inverse of parse.
func (s state) encode() (map[string][]byte, error) {
	data := map[string][]byte{bundleKey: encodeCerts(s.bundle...)}
	keys := map[string]any{caKeyKey: s.caKey}
	if s.serving != nil && s.key != nil {
		data[servingKey] = encodeCerts(s.serving)
		keys[keyKey] = s.key
	}
	for name, key := range keys {
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encode %s: unexpected kind of key", name)
		}
		data[name] = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	return data, nil
}

func encodeCerts(certs ...*x509.Certificate) (text []byte) {
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}
