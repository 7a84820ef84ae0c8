package webhook

import (
	"crypto/x509"
	"slices"
	"time"
)

// Lifetimes. Each is renewed after two thirds, so a fault of the API server or of the
// configurations has months, or a month, to be noticed and mended.
const (
	caLifetime      = 2 * 365 * 24 * time.Hour
	servingLifetime = 90 * 24 * time.Hour

	// backdate lets clocks differ between nodes.
	backdate = time.Hour

	// settle is how long a new CA waits in the configurations before it signs what is
	// served, while the old certificate is still good: API servers follow configurations
	// by watches of their own.
	settle = time.Minute
)

// state is what the Secret holds. What is missing or damaged there is nil here.
type state struct {
	bundle  []*x509.Certificate // trusted CAs, the newest first
	caKey   any                 // of the newest; nil: it signs nothing more
	serving *x509.Certificate
	key     any // of serving
}

// step is what brings the state forward.
type step int

const (
	keep  step = iota // serve what there is
	newCA             // put a new CA in front of the bundle
	trust             // write the bundle into the configurations and read it back
	issue             // sign a serving certificate with the newest CA
)

// next decides what is to be done at a time. trusted says whether both configurations were
// read with exactly the bundle. A certificate is signed only by a
// CA that is trusted already, and a CA leaves the bundle only when it has ended: whoever
// still serves an old certificate is believed.
func next(now time.Time, s state, trusted bool, name string) step {
	if len(s.bundle) == 0 || s.caKey == nil || due(now, s.bundle[0]) {
		return newCA
	}
	if !trusted {
		return trust
	}
	ca := s.bundle[0]
	if s.serving == nil || s.key == nil || due(now, s.serving) || s.serving.VerifyHostname(name) != nil || !signedByAny(s.serving, s.bundle) {
		return issue
	}
	settled := !now.Before(ca.NotBefore.Add(backdate + settle))
	if settled && s.serving.CheckSignatureFrom(ca) != nil {
		return issue
	}
	return keep
}

// due is true for a certificate to replace: not valid yet (a clock was wrong), in its last
// third, or over.
func due(now time.Time, c *x509.Certificate) bool {
	return now.Before(c.NotBefore) || !now.Before(renewal(c))
}

func renewal(c *x509.Certificate) time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

func signedByAny(c *x509.Certificate, cas []*x509.Certificate) bool {
	return slices.ContainsFunc(cas, func(ca *x509.Certificate) bool { return c.CheckSignatureFrom(ca) == nil })
}

// withCA is the state with a new CA in front. CAs that have ended leave.
func (s state) withCA(now time.Time, ca *x509.Certificate, key any) state {
	s.bundle = slices.DeleteFunc(slices.Clone(s.bundle), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })
	s.bundle = slices.Insert(s.bundle, 0, ca)
	s.caKey = key
	return s
}
