package reconcile

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestClip(t *testing.T) {
	tests := map[string]struct {
		message string
		length  int
	}{
		"short":              {"volume pvc-1", 12},
		"at the limit":       {strings.Repeat("v", 32768), 32768},
		"too long":           {strings.Repeat("v", 32769), 32768},
		"inside a character": {strings.Repeat("\u00fc", 20000), 32768},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := clip(tc.message); len(got) != tc.length || !utf8.ValidString(got) {
				t.Errorf("clip = %d bytes, valid %v, want %d", len(got), utf8.ValidString(got), tc.length)
			}
		})
	}
}
