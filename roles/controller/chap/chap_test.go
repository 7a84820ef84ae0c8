package chap

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
)

const (
	chapMethod = v1alpha1.AuthCHAP
	mutual     = v1alpha1.AuthMutualCHAP
)

// TestParse_refuses holds each rule of api.md 2.4 for a Secret (block.md B-261).
func TestParse_refuses(t *testing.T) {
	long := strings.Repeat("x", 256)
	tests := map[string]struct {
		method, key, value string
		want               string
	}{
		"empty user":                {chapMethod, UsernameKey, "", "has 0 bytes"},
		"user of 256 bytes":         {chapMethod, UsernameKey, long, "has 256 bytes"},
		"user NULL":                 {chapMethod, UsernameKey, "NULL", "begins with NULL"},
		"user begins with NULL":     {chapMethod, UsernameKey, "NULLIFIER", "begins with NULL"},
		"user with newline":         {chapMethod, UsernameKey, "node\n", "newline"},
		"user with NUL":             {chapMethod, UsernameKey, "no\x00de", "NUL"},
		"user not UTF-8":            {chapMethod, UsernameKey, "\xff\xfe", "UTF-8"},
		"password of 11 bytes":      {chapMethod, PasswordKey, "12345678901", "has 11 bytes; it must have 12 to 255"},
		"password of 256 bytes":     {chapMethod, PasswordKey, long, "has 256 bytes"},
		"password with newline":     {chapMethod, PasswordKey, "marker-secret\n", "--from-literal"},
		"password NULL":             {chapMethod, PasswordKey, "NULL-marker-secret", "begins with NULL"},
		"mutual user empty":         {mutual, MutualUsernameKey, "", "has 0 bytes"},
		"mutual password short":     {mutual, MutualPasswordKey, "short", "has 5 bytes"},
		"mutual password the same":  {mutual, MutualPasswordKey, "marker-secret-1", "must differ"},
		"mutual password not UTF-8": {mutual, MutualPasswordKey, "\xffmarker-secret", "UTF-8"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			data := good()
			data[tc.key] = []byte(tc.value)
			wantSecretError(t, tc.method, data, tc.key, tc.want)
			delete(data, tc.key)
			wantSecretError(t, tc.method, data, tc.key, "is missing")
		})
	}
}

// TestParse_everyFault: one error names every key that cannot be used, and all that is wrong
// with it.
func TestParse_everyFault(t *testing.T) {
	data := good()
	data[UsernameKey], data[MutualPasswordKey] = []byte("NULLMARKER\n"), []byte("marker")
	delete(data, MutualUsernameKey)
	_, err := parse("ns/s", mutual, data)
	for _, want := range []string{
		`key "username" contains a newline`, "begins with NULL", `key "mutualUsername" is missing`, `key "mutualPassword" has 6 bytes`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(strings.ToLower(err.Error()), "marker") {
			t.Errorf("parse = %v, want %q and no value", err, want)
		}
	}
}

func good() map[string][]byte {
	return map[string][]byte{
		UsernameKey: []byte("node"), PasswordKey: []byte("marker-secret-1"),
		MutualUsernameKey: []byte("target"), MutualPasswordKey: []byte("marker-secret-2"),
	}
}

func wantSecretError(t *testing.T, method string, data map[string][]byte, key, why string) {
	t.Helper()
	got, err := parse("ns/s", method, data)
	var broken *SecretError
	if !errors.As(err, &broken) || broken.Key != key || broken.Secret != "ns/s" || !strings.Contains(broken.Why, why) {
		t.Fatalf("parse(%s) = %v, want key %s: %s", method, err, key, why)
	}
	if got != (Credentials{}) {
		t.Error("credentials beside an error")
	}
	if strings.Contains(err.Error(), "marker") {
		t.Errorf("error %q shows a value (B-9)", err)
	}
}

// TestParse_accepts: every printable ASCII character and every length allowed pass (H-86).
func TestParse_accepts(t *testing.T) {
	var printable strings.Builder
	for c := ' '; c <= '~'; c++ {
		printable.WriteRune(c)
	}
	tests := map[string]struct {
		method, user, password string
	}{
		"printable ASCII": {mutual, printable.String(), printable.String()},
		"shortest":        {chapMethod, "u", "123456789012"},
		"longest":         {chapMethod, strings.Repeat("u", 255), strings.Repeat("p", 255)},
		"16 bytes":        {mutual, "node", "1234567890123456"},
		"other alphabets": {chapMethod, "Knoten-ä", "пароль-пароль"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			data := good()
			data[UsernameKey], data[PasswordKey] = []byte(tc.user), []byte(tc.password)
			got, err := parse("ns/s", tc.method, data)
			if err != nil || got.Username != tc.user || got.Password != tc.password {
				t.Fatalf("parse: %v, or other values", err)
			}
			if (got.MutualPassword != "") != (tc.method == mutual) {
				t.Errorf("mutual pair with %s", tc.method)
			}
		})
	}
}

// TestParse_oneWay ignores a broken mutual pair, as api.md 2.4 has it.
func TestParse_oneWay(t *testing.T) {
	data := good()
	data[MutualPasswordKey] = data[PasswordKey]
	delete(data, MutualUsernameKey)
	if _, err := parse("ns/s", chapMethod, data); err != nil {
		t.Errorf("parse(CHAP) = %v, want the mutual pair ignored", err)
	}
	if _, err := parse("ns/s", "SRP", data); err == nil || errors.As(err, new(*SecretError)) {
		t.Errorf("parse(SRP) = %v, want an error that blames no Secret", err)
	}
}

// TestRead_unasked: what needs no look at the API server gets none.
func TestRead_unasked(t *testing.T) {
	if c, err := Read(t.Context(), nil, "", "", v1alpha1.AuthNone); err != nil || c != (Credentials{}) {
		t.Errorf("Read(None) = %v, %v, want nothing", c, err)
	}
	if _, err := Read(t.Context(), nil, "ns", "", chapMethod); !errors.As(err, new(*SecretError)) || !strings.Contains(err.Error(), "auth.secretRef.name") {
		t.Errorf("Read without a name = %v, want it asked for", err)
	}
	for _, name := range []string{"../kube-system/x", "a%b", ".."} {
		if _, err := Read(t.Context(), nil, "ns", name, chapMethod); !errors.As(err, new(*SecretError)) || !strings.Contains(err.Error(), "auth.secretRef.name is no name") {
			t.Errorf("Read(%s) = %v, want a Secret that cannot exist", name, err)
		}
	}
	if _, err := Read(t.Context(), nil, "", "s", chapMethod); err == nil || errors.As(err, new(*SecretError)) || !strings.Contains(err.Error(), "--namespace") {
		t.Errorf("Read without a namespace = %v, want an error that blames no Secret", err)
	}
}

// TestCredentials_redacted prints them in every way a mistake could (B-9, N-38).
func TestCredentials_redacted(t *testing.T) {
	c, err := parse("ns/s", mutual, good())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(struct{ C Credentials }{c})
	if err != nil {
		t.Fatal(err)
	}
	held := struct{ C *Credentials }{&c}
	for _, got := range []string{
		c.String(), fmt.Sprintf("%v %+v %#v %s %q %x %d", c, c, c, c, c, c, c),
		fmt.Sprintf("%+v %#v", held.C, &c), string(raw), fmt.Errorf("login: %v", c).Error(),
	} {
		if strings.Contains(got, "node") || strings.Contains(got, "marker") || strings.Contains(got, fmt.Sprintf("%x", "marker")) {
			t.Errorf("%q shows a value", got)
		}
	}
}

func TestOf(t *testing.T) {
	ref := &v1alpha1.SecretRef{Name: "chap"}
	tests := map[string]struct {
		protocol       v1alpha1.Protocol
		method, secret string
	}{
		"NVMe":            {v1alpha1.Protocol{NVMeOFTCP: &v1alpha1.NVMeOFTCP{}}, "None", ""},
		"no auth":         {v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{}}, "None", ""},
		"method defaults": {v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{Auth: &v1alpha1.ISCSIAuth{SecretRef: ref}}}, "None", ""},
		"CHAP":            {v1alpha1.Protocol{ISCSI: &v1alpha1.ISCSI{Auth: &v1alpha1.ISCSIAuth{Method: "CHAP", SecretRef: ref}}}, "CHAP", "chap"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if method, secret := Of(tc.protocol); method != tc.method || secret != tc.secret {
				t.Errorf("Of = %s, %q, want %s, %q", method, secret, tc.method, tc.secret)
			}
		})
	}
}
