//go:build !crashpoints

package crashpoint

// Before marks the moment just before an effect.
func Before(kind, what string) {}

// After marks the moment just after an effect.
func After(kind, what string) {}
