package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// clock is a keeper's time.
type clock struct {
	sync.Mutex
	time.Time
}

func (c *clock) now() time.Time { c.Lock(); defer c.Unlock(); return c.Time }

func (c *clock) add(d time.Duration) { c.Lock(); defer c.Unlock(); c.Time = c.Time.Add(d) }

// keeper is one replica of the world; what it logs may hold no key.
func (w world) keeper(t *testing.T, c *clock) *keeper {
	log := funcr.New(func(_, line string) {
		for _, secret := range []string{"PRIVATE KEY", "MII", "MHc"} {
			if strings.Contains(line, secret) {
				t.Errorf("a log line holds %q", secret)
			}
		}
	}, funcr.Options{Verbosity: 9})
	return &keeper{api: w.api, cfg: w.cfg, now: c.now, log: log}
}

// trusted is nil if every configuration trusts what the keeper serves at the time.
func (w world) trusted(ctx context.Context, k *keeper) error {
	served := k.served.Load()
	if served == nil {
		return errors.New("nothing is served")
	}
	configurations, err := k.configurations(ctx)
	if err != nil {
		return err
	}
	if len(configurations) != 2 {
		return fmt.Errorf("%d configurations, want 2", len(configurations))
	}
	for _, c := range configurations {
		for _, config := range clients(c) {
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(config.CABundle)
			options := x509.VerifyOptions{Roots: roots, DNSName: w.cfg.service(), CurrentTime: k.now()}
			if _, err := served.Leaf.Verify(options); err != nil {
				return fmt.Errorf("%T: %w", c, err)
			}
		}
	}
	return nil
}

// TestKeeper_Years lets two years pass in steps of two weeks: what is served is trusted at every
// look, also by a replica that looks rarely.
func TestKeeper_Years(t *testing.T) {
	w, c := newWorld(t), &clock{Time: time.Now()}
	often, rarely := w.keeper(t, c), w.keeper(t, c)
	var cas, certificates []string
	for i := range 50 {
		if err := often.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := rarely.look(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, k := range []*keeper{often, rarely} {
			if err := w.trusted(t.Context(), k); err != nil {
				t.Fatalf("after %d looks: %v", i, err)
			}
		}
		leaf := often.served.Load().Leaf
		cas, certificates = note(cas, string(leaf.AuthorityKeyId)), note(certificates, leaf.SerialNumber.String())
		c.add(14 * day)
	}
	if len(cas) != 2 || len(certificates) < 10 {
		t.Errorf("%d CAs and %d certificates in two years, want 2 and at least 10", len(cas), len(certificates))
	}
}

func note(seen []string, value string) []string {
	if len(seen) > 0 && seen[len(seen)-1] == value {
		return seen
	}
	return append(seen, value)
}

// TestKeeper_Replicas: several begin at once and agree.
func TestKeeper_Replicas(t *testing.T) {
	w, c := newWorld(t), &clock{Time: time.Now()}
	var group sync.WaitGroup
	var all []*keeper
	for range 4 {
		k := w.keeper(t, c)
		all = append(all, k)
		group.Go(func() {
			for range 3 {
				if err := k.look(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for _, k := range all {
		if err := w.trusted(t.Context(), k); err != nil {
			t.Error(err)
		}
		if got, want := k.served.Load().Leaf.SerialNumber, all[0].served.Load().Leaf.SerialNumber; got.Cmp(want) != 0 {
			t.Errorf("replicas serve certificates %v and %v", got, want)
		}
	}
	if _, s, err := all[0].secret(t.Context()); err != nil || len(s.bundle) != 1 {
		t.Errorf("%d CAs after the first start, error %v, want 1", len(s.bundle), err)
	}
}

// TestKeeper_Repairs: what others break is mended by the next look, and a look at a whole
// world writes nothing.
func TestKeeper_Repairs(t *testing.T) {
	w, c := newWorld(t), &clock{Time: time.Now()}
	k := w.keeper(t, c)
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	tests := map[string]func() error{
		"caBundle reset": func() error { return w.reset(t) },
		"Secret deleted": func() error { return w.api.Delete(t.Context(), w.secret()) },
		"Secret damaged": func() error {
			return w.api.Patch(t.Context(), w.secret(), client.RawPatch("application/merge-patch+json", []byte(`{"data":{"tls.key":"eA==","ca.key":"eA=="}}`)))
		},
		"nothing": func() error { return nil },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if err := k.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			before := w.versions(t, k)
			if err := k.look(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := w.trusted(t.Context(), k); err != nil {
				t.Error(err)
			}
			if after := w.versions(t, k); after != before {
				t.Errorf("a look with nothing to do wrote: %s, then %s", before, after)
			}
		})
	}
}

func (w world) secret() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.cfg.Namespace, Name: w.cfg.secret()}}
}

// reset puts the configurations back as they are shipped.
func (w world) reset(t *testing.T) error {
	for _, shipped := range w.configurations(t) {
		have := shipped.DeepCopyObject().(client.Object)
		if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(have), have); err != nil {
			return err
		}
		shipped.SetResourceVersion(have.GetResourceVersion())
		if err := w.api.Update(t.Context(), shipped); err != nil {
			return err
		}
	}
	return nil
}

func (w world) versions(t *testing.T, k *keeper) (text string) {
	t.Helper()
	configurations, err := k.configurations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	secret, _, err := k.secret(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, obj := range append(configurations, secret) {
		text += obj.GetResourceVersion() + " "
	}
	return text
}

func TestPause(t *testing.T) {
	wait, seen := soon, []time.Duration(nil)
	for _, news := range []bool{false, false, false, false, true, false} {
		wait = pause(wait, news)
		seen = append(seen, wait)
	}
	if want := []time.Duration{2 * soon, 4 * soon, calm, calm, soon, 2 * soon}; !slices.Equal(seen, want) {
		t.Errorf("pauses = %s, want %s", seen, want)
	}
}

// TestKeeper_NoConfigurations: with webhooks turned off by deleting both configurations, a
// certificate is kept all the same, for the day they come back.
func TestKeeper_NoConfigurations(t *testing.T) {
	w, c := newWorld(t), &clock{Time: time.Now()}
	for _, obj := range w.configurations(t) {
		if err := w.api.Delete(t.Context(), obj); err != nil {
			t.Fatal(err)
		}
	}
	k := w.keeper(t, c)
	if _, err := k.certificate(&tls.ClientHelloInfo{}); err == nil {
		t.Error("a certificate is served before the first look")
	}
	if err := k.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := k.certificate(&tls.ClientHelloInfo{}); err != nil {
		t.Error(err)
	}
}
