package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// soon and calm bound the pause until Secret and configurations are read again: two
	// replicas share a Secret, and somebody may have replaced a configuration.
	soon, calm = 10 * time.Second, time.Minute

	// lookTime bounds one look; the API server answers in milliseconds.
	lookTime = 30 * time.Second

	// tries bounds the steps of one look: four make a certificate from nothing, the others
	// are lost races with other replicas.
	tries = 12
)

// keeper keeps Secret, configurations and the certificate that is served in accord, on
// every replica. Two of them agree by compare-and-swap: configurations are read before the
// Secret and patched only unchanged, so that a slow one never puts an older bundle back.
type keeper struct {
	api client.Client
	cfg Config
	now func() time.Time
	log logr.Logger

	served atomic.Pointer[tls.Certificate]
	writes int // of this replica, so far
}

// NeedLeaderElection is false: every replica serves.
func (k *keeper) NeedLeaderElection() bool { return false }

// certificate answers handshakes. Until the API server trusts a certificate there is none.
func (k *keeper) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.served.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("the webhook has no certificate yet")
}

// Start looks again and again until ctx ends. A failed look changes nothing that is served.
func (k *keeper) Start(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for wait := soon; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		before := k.writes
		err := k.look(ctx)
		if err != nil && ctx.Err() == nil {
			k.log.Error(err, "webhook certificate not kept")
		}
		wait = pause(wait, err != nil || k.writes != before)
		timer.Reset(wait + rand.N(wait/4)) // replicas that start together do not look together
	}
}

// pause is the one after the last: short while something happens, growing while nothing does.
func pause(last time.Duration, news bool) time.Duration {
	if news {
		return soon
	}
	return min(2*last, calm)
}

// look takes steps until there is nothing to do, then serves what the Secret holds.
func (k *keeper) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	for range tries {
		done, err := k.step(ctx)
		switch {
		case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err): // another replica was first
		case done || err != nil:
			return err
		}
	}
	return fmt.Errorf("secret %s and the webhook configurations %s keep changing", k.cfg.secret(), k.cfg.Name)
}

// step reads everything and does the one thing that comes next.
func (k *keeper) step(ctx context.Context) (done bool, err error) {
	configurations, err := k.configurations(ctx)
	if err != nil {
		return false, err
	}
	secret, s, err := k.secret(ctx)
	if err != nil {
		return false, err
	}
	bundle, now := encodeCerts(s.bundle...), k.now()
	switch next(now, s, trusts(configurations, bundle), k.cfg.service()) {
	case newCA:
		ca, key, err := makeCA(now)
		if err != nil {
			return false, err
		}
		return false, k.write(ctx, secret, s.withCA(now, ca, key), "webhook CA made", ca.NotAfter)
	case trust:
		return false, k.inject(ctx, configurations, bundle)
	case issue:
		if s.serving, s.key, err = makeServing(now, k.cfg.service(), k.cfg.Host, s.bundle[0], s.caKey); err != nil {
			return false, err
		}
		return false, k.write(ctx, secret, s, "webhook certificate issued", s.serving.NotAfter)
	case keep:
		k.served.Store(&tls.Certificate{Certificate: [][]byte{s.serving.Raw}, PrivateKey: s.key, Leaf: s.serving})
	}
	return true, nil
}

// secret reads the Secret; without one its resource version is empty.
func (k *keeper) secret(ctx context.Context) (*corev1.Secret, state, error) {
	secret := &corev1.Secret{}
	err := k.api.Get(ctx, client.ObjectKey{Namespace: k.cfg.Namespace, Name: k.cfg.secret()}, secret)
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.cfg.Namespace, Name: k.cfg.secret()}}, state{}, nil
	}
	if err != nil {
		return nil, state{}, fmt.Errorf("read Secret %s: %w", k.cfg.secret(), err)
	}
	s, damage := parse(secret.Data)
	if damage != nil {
		k.log.Info("webhook Secret is damaged, what is damaged is made again", "secret", k.cfg.secret(), "damage", damage.Error())
	}
	return secret, s, nil
}

// write creates or updates the Secret, only if nobody changed it since it was read.
func (k *keeper) write(ctx context.Context, secret *corev1.Secret, s state, what string, until time.Time) (err error) {
	if secret.Data, err = s.encode(); err != nil {
		return err
	}
	k.writes++
	if secret.ResourceVersion == "" {
		err = k.api.Create(ctx, secret)
	} else {
		err = k.api.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("write Secret %s: %w", secret.Name, err)
	}
	k.log.Info(what, "not_after", until)
	return nil
}

// configurations reads both webhook configurations. One that is absent is left out: then
// the API server calls nothing, and the CRDs hold alone.
func (k *keeper) configurations(ctx context.Context) (found []client.Object, err error) {
	for _, obj := range []client.Object{&admissionv1.ValidatingWebhookConfiguration{}, &admissionv1.MutatingWebhookConfiguration{}} {
		err := k.api.Get(ctx, client.ObjectKey{Name: k.cfg.Name}, obj)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read %T %s: %w", obj, k.cfg.Name, err)
		}
		found = append(found, obj)
	}
	return found, nil
}

// clients answers the places of a configuration that name a CA.
func clients(configuration client.Object) (all []*admissionv1.WebhookClientConfig) {
	switch c := configuration.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range c.Webhooks {
			all = append(all, &c.Webhooks[i].ClientConfig)
		}
	}
	return all
}

func trusts(configurations []client.Object, bundle []byte) bool {
	for _, c := range configurations {
		for _, config := range clients(c) {
			if !bytes.Equal(config.CABundle, bundle) {
				return false
			}
		}
	}
	return true
}

// inject writes the bundle into the configurations, only where nobody changed them since
// they were read.
func (k *keeper) inject(ctx context.Context, configurations []client.Object, bundle []byte) error {
	for _, c := range configurations {
		if trusts([]client.Object{c}, bundle) {
			continue
		}
		old := c.DeepCopyObject().(client.Object)
		for _, config := range clients(c) {
			config.CABundle = bundle
		}
		k.writes++
		patch := client.StrategicMergeFrom(old, client.MergeFromWithOptimisticLock{})
		if err := k.api.Patch(ctx, c, patch); err != nil {
			return fmt.Errorf("patch caBundle of %T %s: %w", c, c.GetName(), err)
		}
		k.log.Info("webhook CA injected", "configuration", c.GetName(), "kind", fmt.Sprintf("%T", c))
	}
	return nil
}
