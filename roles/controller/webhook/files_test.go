package webhook

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// issuer is somebody else's CA and the folder its certificates are mounted at.
type issuer struct {
	dir string
	ca  *x509.Certificate
	key crypto.Signer
	n   int
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	ca, key, err := makeCA(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &issuer{dir: t.TempDir(), ca: ca, key: key}
}

// issue mounts a certificate for a name, made at a time, as kubelet does: the files are links
// into a folder that is replaced at once. It answers the certificate's serial number.
func (i *issuer) issue(t *testing.T, name string, at time.Time) string {
	t.Helper()
	serving, key, err := makeServing(at, name, "127.0.0.1", i.ca, i.key)
	if err != nil {
		t.Fatal(err)
	}
	data, err := state{bundle: []*x509.Certificate{i.ca}, caKey: i.key, serving: serving, key: key}.encode()
	if err != nil {
		t.Fatal(err)
	}
	i.mount(t, data)
	return serving.SerialNumber.String()
}

func (i *issuer) mount(t *testing.T, data map[string][]byte) {
	t.Helper()
	i.n++
	folder, link := fmt.Sprintf("..%d", i.n), filepath.Join(i.dir, "..data")
	was, _ := os.Readlink(link) // none before the first
	steps := []error{os.Mkdir(filepath.Join(i.dir, folder), 0o700)}
	for _, name := range []string{servingKey, keyKey} {
		steps = append(steps, os.WriteFile(filepath.Join(i.dir, folder, name), data[name], 0o600))
		if was == "" {
			steps = append(steps, os.Symlink(filepath.Join("..data", name), filepath.Join(i.dir, name)))
		}
	}
	steps = append(steps, os.Symlink(folder, link+"_tmp"), os.Rename(link+"_tmp", link))
	if was != "" {
		steps = append(steps, os.RemoveAll(filepath.Join(i.dir, was)))
	}
	for _, err := range steps {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// inject writes the issuer's CA into the world's configurations, as cert-manager does.
func (i *issuer) inject(t *testing.T, w world) {
	t.Helper()
	k := w.keeper(t, &clock{Time: time.Now()})
	configurations, err := k.configurations(t.Context())
	if err == nil {
		err = k.inject(t.Context(), configurations, encodeCerts(i.ca))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestFiles serves the certificate of another issuer, follows its rotation, and writes
// nothing itself.
func TestFiles(t *testing.T) {
	w, i := newWorld(t), newIssuer(t)
	w.cfg.CertDir = i.dir
	first := i.issue(t, w.cfg.service(), time.Now())
	i.inject(t, w)
	w.serve(t)
	if got := w.serial(t); got != first {
		t.Errorf("served certificate is %s, want %s", got, first)
	}
	before := w.versions(t, w.keeper(t, &clock{}))
	second := i.issue(t, w.cfg.service(), time.Now())
	for start := time.Now(); w.serial(t) != second; time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > 20*time.Second { // it looks every 10 s where no event tells
			t.Fatalf("served certificate is %s 20 s after its rotation to %s", w.serial(t), second)
		}
	}
	w.callable(t)
	i.mount(t, map[string][]byte{servingKey: []byte("no PEM"), keyKey: []byte("no PEM")})
	time.Sleep(200 * time.Millisecond)
	if got := w.serial(t); got != second {
		t.Errorf("served certificate is %s after one that cannot be read, want %s still", got, second)
	}
	if after := w.versions(t, w.keeper(t, &clock{})); after != before {
		t.Errorf("objects of the world were written: %s, then %s", before, after)
	}
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(w.secret()), w.secret()); !apierrors.IsNotFound(err) {
		t.Errorf("Secret of the controller's own: %v, want none", err)
	}
}

// serial is that of the certificate a handshake shows.
func (w world) serial(t *testing.T) string {
	t.Helper()
	conn, err := tls.Dial("tcp", net.JoinHostPort(w.cfg.Host, fmt.Sprint(w.cfg.Port)), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

// TestFiles_wrong: files nobody can serve end the start, and a certificate no API server
// accepts keeps the controller from being ready; both say what to do.
func TestFiles_wrong(t *testing.T) {
	cfg := Config{Name: "p", Namespace: "ns"}
	name, now := cfg.service(), time.Now()
	tests := map[string]struct {
		mount        func(t *testing.T, i *issuer)
		start, check string // what the error says; empty: none
	}{
		"good":     {func(t *testing.T, i *issuer) { i.issue(t, name, now) }, "", ""},
		"no files": {func(*testing.T, *issuer) {}, "tls.crt: no such file or directory; mount the issuer's Secret there, or leave the flag out", ""},
		"no key":   {func(t *testing.T, i *issuer) { i.issue(t, name, now); os.Remove(filepath.Join(i.dir, keyKey)) }, "tls.key: no such file", ""},
		"no PEM": {func(t *testing.T, i *issuer) {
			i.mount(t, map[string][]byte{servingKey: []byte("hunter2"), keyKey: []byte("hunter2")})
		}, "failed to find any PEM data", ""},
		"no pair":    {func(t *testing.T, i *issuer) { i.mismatch(t, name) }, "private key does not match public key", ""},
		"other name": {func(t *testing.T, i *issuer) { i.issue(t, "other.ns.svc", now) }, "", "valid for other.ns.svc, not p-webhook.ns.svc; have it issued for the DNS name p-webhook.ns.svc"},
		"over":       {func(t *testing.T, i *issuer) { i.issue(t, name, now.Add(-2*servingLifetime)) }, "", "have its issuer renew it"},
		"to come":    {func(t *testing.T, i *issuer) { i.issue(t, name, now.Add(day)) }, "", "is good from"},
	}
	for label, tc := range tests {
		t.Run(label, func(t *testing.T) {
			i := newIssuer(t)
			tc.mount(t, i)
			own := cfg
			own.CertDir = i.dir
			f, err := newFiles(own, func() time.Time { return now })
			wantError(t, "newFiles", err, tc.start)
			if err == nil {
				wantError(t, "check", f.check(nil), tc.check)
			}
		})
	}
}

// mismatch mounts a certificate with the key of another.
func (i *issuer) mismatch(t *testing.T, name string) {
	t.Helper()
	i.issue(t, name, time.Now())
	key, err := os.ReadFile(filepath.Join(i.dir, keyKey))
	if err != nil {
		t.Fatal(err)
	}
	i.issue(t, name, time.Now())
	if err := os.WriteFile(filepath.Join(i.dir, keyKey), key, 0o600); err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, call string, err error, fragment string) {
	t.Helper()
	if (err == nil) != (fragment == "") || err != nil && !strings.Contains(err.Error(), fragment) {
		t.Errorf("%s = %v, want %q", call, err, fragment)
	}
	if err != nil && strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%s shows what is in a file: %v", call, err)
	}
}
