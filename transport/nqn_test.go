package transport

import (
	"errors"
	"strings"
	"testing"
)

func TestParseNQN(t *testing.T) {
	tests := map[string]struct {
		in string
		ok bool
	}{
		"host by uuid":      {"nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", true},
		"volume":            {"nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1", true},
		"without a name":    {"nqn.2026-01.com.example", true},
		"longest":           {"nqn.2026-01.com.example:" + strings.Repeat("x", nqnLimit-24), true},
		"too long":          {"nqn.2026-01.com.example:" + strings.Repeat("x", nqnLimit-23), false},
		"empty":             {"", false},
		"parent directory":  {"..", false},
		"slash":             {"nqn.2026-01.com.example:a/b", false},
		"comma":             {"nqn.2026-01.com.example:a,traddr=10.0.0.9", false},
		"newline":           {"nqn.2026-01.com.example:a\n", false},
		"blank":             {"nqn.2026-01.com.example:a b", false},
		"iqn":               {"iqn.2026-01.com.example:a", false},
		"month that is not": {"nqn.2026-13.com.example:a", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseNQN(tc.in)
			if (err == nil) != tc.ok || (err != nil && !errors.Is(err, ErrInvalid)) {
				t.Errorf("ParseNQN(%q) = %v, want ok %v", tc.in, err, tc.ok)
			}
		})
	}
}
