package artifacts

import (
	"errors"
	"strings"
	"testing"
)

func TestCache_ZFS_offline(t *testing.T) {
	c := &Cache{Dir: t.TempDir(), Offline: true}
	_, uml := c.UMLZFS(t.Context())
	_, qemu := c.QEMUZFS(t.Context())
	for kind, err := range map[string]error{"UMLZFS": uml, "QEMUZFS": qemu} {
		if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "`lab build zfs`") {
			t.Errorf("%s() = %v, want ErrMissing that names the command", kind, err)
		}
	}
}

func TestSymvers(t *testing.T) {
	want := "0x00000000\tkmalloc\tvmlinux\tEXPORT_SYMBOL\t\n0x00000000\tkfree\tvmlinux\tEXPORT_SYMBOL\t\n"
	if got := symvers("kmalloc\x00kfree\x00\x00"); got != want {
		t.Errorf("symvers() = %q, want %q", got, want)
	}
}
