package configfstest

import "testing"

func TestKernel_Rules(t *testing.T) {
	Rules(t, func(t *testing.T) System { return System{FS: New(), Device: "/dev/spare"} })
}
