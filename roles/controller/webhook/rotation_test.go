package webhook

import (
	"strings"
	"testing"
	"time"
)

const host = "pillar-csi-webhook.pillar-csi-system.svc"

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// aged makes a state: CAs of these ages, the newest first, and a certificate of an age
// signed by the CA at an index; -1 is no certificate.
func aged(t *testing.T, age time.Duration, signer int, cas ...time.Duration) state {
	t.Helper()
	var s state
	for i := len(cas) - 1; i >= 0; i-- {
		ca, key, err := makeCA(epoch.Add(-cas[i]))
		if err != nil {
			t.Fatal(err)
		}
		s = s.withCA(epoch.Add(-cas[i]), ca, key)
		if i == signer {
			if s.serving, s.key, err = makeServing(epoch.Add(-age), host, "", ca, key); err != nil {
				t.Fatal(err)
			}
		}
	}
	return s
}

const (
	day = 24 * time.Hour
	mo  = 30 * day
)

func TestNext(t *testing.T) {
	without := func(s state, change func(*state)) state { change(&s); return s }
	tests := map[string]struct {
		state   state
		trusted bool
		name    string
		want    step
	}{
		"nothing yet":                             {state{}, false, host, newCA},
		"nothing yet, no configuration":           {state{}, true, host, newCA},
		"a CA nobody trusts":                      {aged(t, 0, -1, 0), false, host, trust},
		"a CA that is trusted":                    {aged(t, 0, -1, 0), true, host, issue},
		"all is well":                             {aged(t, day, 0, day), true, host, keep},
		"somebody replaced a configuration":       {aged(t, day, 0, day), false, host, trust},
		"certificate shortly before its time":     {aged(t, 59*day, 0, 2*mo), true, host, keep},
		"certificate in its last third":           {aged(t, 61*day, 0, 3*mo), true, host, issue},
		"certificate over":                        {aged(t, 91*day, 0, 4*mo), true, host, issue},
		"certificate of another name":             {aged(t, day, 0, day), true, "other.ns.svc", issue},
		"CA shortly before its time":              {aged(t, day, 0, 16*mo), true, host, keep},
		"CA in its last third":                    {aged(t, day, 0, 17*mo), true, host, newCA},
		"new CA, not trusted":                     {aged(t, mo, 1, 0, 17*mo), false, host, trust},
		"new CA, trusted a moment ago":            {aged(t, mo, 1, settle/2, 17*mo), true, host, keep},
		"new CA, trusted for a while":             {aged(t, mo, 1, settle, 17*mo), true, host, issue},
		"new CA, trusted, old certificate over":   {aged(t, 91*day, 1, 0, 17*mo), true, host, issue},
		"new CA, not trusted, old one over":       {aged(t, 91*day, 1, 0, 25*mo), false, host, trust},
		"made while the clock was ahead":          {aged(t, -day, 0, -day), true, host, newCA},
		"certificate made while it was ahead":     {aged(t, -day, 0, day), true, host, issue},
		"CA key lost":                             {without(aged(t, day, 0, day), func(s *state) { s.caKey = nil }), true, host, newCA},
		"certificate key lost":                    {without(aged(t, day, 0, day), func(s *state) { s.key = nil }), true, host, issue},
		"certificate of a CA outside the bundle":  {without(aged(t, day, 1, day, mo), func(s *state) { s.bundle = s.bundle[:1] }), true, host, issue},
		"CA key lost, configuration replaced too": {without(aged(t, day, 0, day), func(s *state) { s.caKey = nil }), false, host, newCA},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := next(epoch, test.state, test.trusted, test.name); got != test.want {
				t.Errorf("next = %d, want %d", got, test.want)
			}
		})
	}
}

// TestState_withCA: an old CA stays until it has ended, and signs nothing more.
func TestState_withCA(t *testing.T) {
	s := aged(t, day, 1, 0, 17*mo, 23*mo)
	if len(s.bundle) != 3 {
		t.Fatalf("%d CAs, want 3: none has ended", len(s.bundle))
	}
	later := epoch.Add(2 * mo)
	ca, key, err := makeCA(later)
	if err != nil {
		t.Fatal(err)
	}
	old := s.bundle
	s = s.withCA(later, ca, key)
	if len(s.bundle) != 3 || !s.bundle[0].Equal(ca) || !s.bundle[1].Equal(old[0]) || !s.bundle[2].Equal(old[1]) || s.caKey != any(key) {
		t.Errorf("%d CAs, want the new one before the two that have not ended", len(s.bundle))
	}
}

func TestParse(t *testing.T) {
	good, err := aged(t, day, 0, day, mo).encode()
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(map[string][]byte)
		want   string // what is left: CAs, c: CA key, s: certificate
		damage string
	}{
		"whole":                 {func(map[string][]byte) {}, "2cs", ""},
		"empty":                 {func(d map[string][]byte) { clear(d) }, "0", ""},
		"no certificate":        {func(d map[string][]byte) { delete(d, servingKey) }, "2c", ""},
		"no certificate key":    {func(d map[string][]byte) { delete(d, keyKey) }, "2c", "tls.crt and tls.key are no pair"},
		"no CA key":             {func(d map[string][]byte) { delete(d, caKeyKey) }, "2s", "ca.key does not belong to ca.crt"},
		"another CA key":        {func(d map[string][]byte) { d[caKeyKey] = d[keyKey] }, "2s", "ca.key does not belong to ca.crt"},
		"no bundle":             {func(d map[string][]byte) { delete(d, bundleKey) }, "0s", ""},
		"damaged bundle":        {func(d map[string][]byte) { d[bundleKey] = []byte("x" + string(d[bundleKey])) }, "1s", "ca.key does not belong"},
		"text that is no key":   {func(d map[string][]byte) { d[keyKey] = []byte("hunter2") }, "2c", "no pair"},
		"no PEM in a CA's text": {func(d map[string][]byte) { d[bundleKey] = []byte("hunter2") }, "0s", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			for k, v := range good {
				data[k] = v
			}
			test.change(data)
			s, damage := parse(data)
			if got := parts(s); got != test.want {
				t.Errorf("parse left %s, want %s", got, test.want)
			}
			if (damage == nil) != (test.damage == "") || damage != nil && !strings.Contains(damage.Error(), test.damage) {
				t.Errorf("damage = %v, want %q", damage, test.damage)
			}
			if damage != nil && (strings.Contains(damage.Error(), "hunter2") || strings.Contains(damage.Error(), "PRIVATE")) {
				t.Errorf("damage shows contents: %v", damage)
			}
		})
	}
}

func parts(s state) string {
	text := string(rune('0' + len(s.bundle)))
	if s.caKey != nil {
		text += "c"
	}
	if s.serving != nil {
		text += "s"
	}
	return text
}
