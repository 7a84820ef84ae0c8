// Package chap reads the credentials of an iSCSI protocol from its Secret:
//
//	username, password               CHAP and MutualCHAP: the node proves itself
//	mutualUsername, mutualPassword   MutualCHAP: the target proves itself, too
//
// The Secret lies in the namespace pillar is installed in and is read by name, afresh for
// each use (block.md B-262); it is never listed, watched or cached. Values leave this
// package only as fields of Credentials, which print as "redacted" (B-9).
package chap

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/controller/settings"
)

// Keys of the Secret (api.md 2.4).
const (
	UsernameKey       = "username"
	PasswordKey       = "password"
	MutualUsernameKey = "mutualUsername"
	MutualPasswordKey = "mutualPassword"
)

// Credentials of one protocol; the mutual pair is empty without MutualCHAP, and all four
// are empty for None.
type Credentials struct {
	Username, Password             string
	MutualUsername, MutualPassword string
}

const redacted = "redacted"

// String shows no value, and neither do Format and MarshalJSON.
func (Credentials) String() string { return redacted }

// Format answers every verb alike: %x and %#v show no more than %v.
func (Credentials) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// MarshalJSON is String as JSON: loggers write structs so.
func (Credentials) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// SecretError is a Secret that is missing (no Key) or has a missing or invalid key. It
// never holds a value. Any other error of Read means that nothing is known about it.
type SecretError struct {
	Secret string // <namespace>/<name>
	Key    string
	Why    string // what is wrong and what to do
}

func (e *SecretError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("Secret %q %s", e.Secret, e.Why)
	}
	return fmt.Sprintf("Secret %q key %q %s", e.Secret, e.Key, e.Why)
}

// Of answers the method and the name of the Secret a protocol authenticates with; None
// and no name for every other protocol.
func Of(p v1alpha1.Protocol) (method, secret string) {
	if p.ISCSI == nil || p.ISCSI.Auth == nil || p.ISCSI.Auth.Method == "" {
		return v1alpha1.AuthNone, ""
	}
	if ref := p.ISCSI.Auth.SecretRef; ref != nil {
		secret = ref.Name
	}
	return p.ISCSI.Auth.Method, secret
}

// Read answers the credentials a method needs. api must read the API server itself: a
// cache would list and watch every Secret. It returns *SecretError where the Secret is
// missing or cannot be used; any other error is a failure to read it.
func Read(ctx context.Context, api client.Reader, namespace, name, method string) (Credentials, error) {
	if method == v1alpha1.AuthNone {
		return Credentials{}, nil
	}
	label := namespace + "/" + name
	if namespace == "" {
		return Credentials{}, fmt.Errorf("read Secret %s: the controller does not know its namespace; set --namespace", name)
	}
	if name == "" {
		return Credentials{}, &SecretError{Secret: label, Why: "has no name; set auth.secretRef.name"}
	}
	if !settings.ObjectName(name) {
		return Credentials{}, &SecretError{Secret: label, Why: "cannot exist: auth.secretRef.name is no name of an object; use lower-case letters, digits, - and ."}
	}
	secret := &corev1.Secret{}
	err := api.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return Credentials{}, &SecretError{Secret: label, Why: "does not exist; create it with " + keyList(method)}
	}
	if err != nil {
		return Credentials{}, fmt.Errorf("read Secret %s: %w", label, err)
	}
	return parse(label, method, secret.Data)
}

func keyList(method string) string {
	if method == v1alpha1.AuthMutualCHAP {
		return "the keys username, password, mutualUsername and mutualPassword"
	}
	return "the keys username and password"
}

// Lengths in bytes (api.md 2.4).
const (
	minUsername = 1
	minPassword = 12
	maxValue    = 255
)

// secretErrors are all keys of one Secret that cannot be used.
type secretErrors []error

func (e secretErrors) Error() string {
	var all []string
	for _, one := range e {
		all = append(all, one.Error())
	}
	return strings.Join(all, "; ")
}

// Unwrap lets errors.As find the first.
func (e secretErrors) Unwrap() []error { return e }

// parse checks the keys the method needs, in a fixed order; the mutual pair is ignored
// without MutualCHAP. The error names every one that cannot be used.
func parse(secret, method string, data map[string][]byte) (Credentials, error) {
	var c Credentials
	fields := []struct {
		key   string
		least int
		value *string
	}{
		{UsernameKey, minUsername, &c.Username},
		{PasswordKey, minPassword, &c.Password},
		{MutualUsernameKey, minUsername, &c.MutualUsername},
		{MutualPasswordKey, minPassword, &c.MutualPassword},
	}
	switch method {
	case v1alpha1.AuthCHAP:
		fields = fields[:2]
	case v1alpha1.AuthMutualCHAP:
	default:
		return Credentials{}, fmt.Errorf("auth.method %q is none of None, CHAP and MutualCHAP", method)
	}
	var bad secretErrors
	for _, f := range fields {
		value, ok := data[f.key]
		if !ok {
			bad = append(bad, &SecretError{secret, f.key, "is missing; add it"})
		} else if why := invalid(value, f.least); len(why) > 0 {
			bad = append(bad, &SecretError{secret, f.key, strings.Join(why, ", ")})
		}
		*f.value = string(value)
	}
	if len(bad) == 0 && method == v1alpha1.AuthMutualCHAP && c.MutualPassword == c.Password {
		bad = append(bad, &SecretError{secret, MutualPasswordKey, "is the same as password; the two must differ"})
	}
	if len(bad) > 0 {
		return Credentials{}, bad
	}
	return c, nil
}

// invalid says all that is wrong with a value, without showing it.
func invalid(value []byte, least int) (why []string) {
	if len(value) < least || len(value) > maxValue {
		why = append(why, fmt.Sprintf("has %d bytes; it must have %d to %d", len(value), least, maxValue))
	}
	if !utf8.Valid(value) {
		why = append(why, "is not valid UTF-8")
	}
	if bytes.ContainsRune(value, 0) {
		why = append(why, "contains a NUL byte")
	}
	if bytes.ContainsRune(value, '\n') {
		why = append(why, "contains a newline; write it without, for example with kubectl create secret generic --from-literal")
	}
	if bytes.HasPrefix(value, []byte("NULL")) {
		why = append(why, "begins with NULL, which the kernel's target takes for unset; choose another")
	}
	return why
}
