package version

import (
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	v := info{Version: "v1.2.3", Commit: "abc", GoVersion: "go1.26"}
	tests := map[string]struct{ want string }{
		"text": {"pillar v1.2.3\ncommit abc\ngo1.26\n"},
		"json": {`{"version":"v1.2.3","commit":"abc","goVersion":"go1.26"}` + "\n"},
	}
	for output, test := range tests {
		t.Run(output, func(t *testing.T) {
			var b strings.Builder
			if err := write(&b, output, v); err != nil || b.String() != test.want {
				t.Errorf("write(%s) = %q, %v, want %q", output, b.String(), err, test.want)
			}
		})
	}
	t.Run("unknown", func(t *testing.T) {
		if err := write(&strings.Builder{}, "xml", v); err == nil {
			t.Error("write(xml) = nil, want an error")
		}
	})
}
