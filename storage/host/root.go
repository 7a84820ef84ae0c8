// Package host is the machine below pillar: where its files are (Root) and how its
// programs run (Runner). Standard library and x/sys only; everything else may stand on it.
package host

import "path/filepath"

// Root is the directory that stands for "/". The zero value is the real root; tests hand
// in t.TempDir().
type Root string

// Path joins elem below the root.
func (r Root) Path(elem ...string) string {
	if r == "" {
		r = "/"
	}
	return filepath.Join(append([]string{string(r)}, elem...)...)
}
