package artifacts

import (
	"errors"
	"strings"
	"testing"
)

func TestCache_ZFS_offline(t *testing.T) {
	c := &Cache{Dir: t.TempDir(), Offline: true}
	_, err := c.ZFS(t.Context())
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "`lab build zfs`") {
		t.Errorf("ZFS() = %v, want ErrMissing that names the command", err)
	}
}

func TestSymvers(t *testing.T) {
	want := "0x00000000\tkmalloc\tvmlinux\tEXPORT_SYMBOL\t\n0x00000000\tkfree\tvmlinux\tEXPORT_SYMBOL\t\n"
	if got := symvers("kmalloc\x00kfree\x00\x00"); got != want {
		t.Errorf("symvers() = %q, want %q", got, want)
	}
}
