package settings

import (
	"fmt"
	"strings"
	"testing"
)

// TestProblems_bounded: however much a claim's author writes, the message stays short, says
// how much it leaves out, and keeps the fix.
func TestProblems_bounded(t *testing.T) {
	flood := func(entry string, n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, entry, i)
		}
		return "{" + b.String() + "}"
	}
	long := strings.Repeat("a", maxDocument-100)
	tests := map[string]struct {
		docs Documents
		want string
	}{
		"many keys":     {Documents{flood("a%d: 1,", 1500), flood("b%d: 1,", 1500), flood("c%d: 1,", 1500)}, "4500 settings are refused: (1) "},
		"how many more": {Documents{Protocol: flood("b%d: 1,", 1500)}, "; and 1490 more"},
		"long key":      {Documents{Protocol: "{" + long[:1000] + ": 1}"}, "supported: iscsi, nfs, nvmeofTcp"},
		"long value":    {Documents{Filesystem: "{fsType: " + long + "}"}, "use one of ext4, xfs, nfs"},
		"long option":   {Documents{Filesystem: "{mkfsOptions: [" + long + "]}"}, "mkfs option"},
		"many options":  {Documents{Filesystem: "{mkfsOptions: [" + strings.Repeat("-z,", 5000) + "]}"}, "mkfs option"},
		"not YAML":      {Documents{Backend: "a: *" + long}, "is not YAML"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := lvmOverNVMe()
			l.VolumeDocs = test.docs
			_, err := Resolve(l)
			if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > maxMessage {
				t.Errorf("Resolve = %.300v, want at most %d bytes with %q", err, maxMessage, test.want)
			}
		})
	}
	twelve := Problems{}
	for range 12 {
		twelve = append(twelve, &FieldError{Key: "k", Path: long, Value: long, Why: long, Fix: long})
	}
	if n := len(twelve.Error()); n > maxMessage || len(twelve[0].Error()) > maxProblem {
		t.Errorf("message has %d bytes, the first problem %d", n, len(twelve[0].Error()))
	}
}

func TestClip(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"short":                {"volume pvc-1", "volume pvc-1"},
		"at the limit":         {strings.Repeat("v", 20), strings.Repeat("v", 20)},
		"too long":             {strings.Repeat("v", 21), strings.Repeat("v", 17) + "..."},
		"inside a character":   {strings.Repeat("\u00fc", 20), strings.Repeat("\u00fc", 8) + "..."},
		"no character":         {"a\xffb", "a?b"},
		"no characters at all": {strings.Repeat("\xff", 30), "?"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Clip(tc.text, 20); got != tc.want {
				t.Errorf("Clip(%q) = %q, want %q", tc.text, got, tc.want)
			}
		})
	}
}
