package nvmet

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/pillar-csi/pillar/storage/host/hosttest"
)

// A portal that is kept quiet refuses new connections as one at which nobody listens; those
// that are there, and other portals, notice nothing.
func TestKeepOut_kernel(t *testing.T) {
	hosttest.Need(t, "nvmet")
	for name, c := range map[string]struct{ listen, quiet, beside string }{
		"IPv4":               {"127.0.0.1:0", "127.0.0.1", "127.0.0.2:0"},
		"IPv4, high address": {"127.255.255.254:0", "127.255.255.254", "127.0.0.1:0"},
		"IPv6":               {"[::1]:0", "::1", "127.0.0.1:0"},
		"every address":      {"0.0.0.0:0", "0.0.0.0", "127.0.0.1:0"},
	} {
		t.Run(name, func(t *testing.T) {
			at, beside := listen(t, c.listen), listen(t, c.beside)
			portal := netip.AddrPortFrom(netip.MustParseAddr(c.quiet), at.Port())
			before, err := net.Dial("tcp", at.String())
			must(t, err)
			defer before.Close()
			loud, err := KeepOut(portal)
			must(t, err)
			if _, err := net.Dial("tcp", at.String()); !errors.Is(err, syscall.ECONNREFUSED) {
				t.Errorf("Dial(%s) while it is quiet = %v, want ECONNREFUSED", at, err)
			}
			wantEcho(t, before)
			dialed(t, beside)
			must(t, loud())
			dialed(t, at)
		})
	}
}

func dialed(t *testing.T, at netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("tcp", at.String())
	must(t, err)
	defer conn.Close()
	wantEcho(t, conn)
}

func wantEcho(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := conn.Write([]byte("x"))
	must(t, err)
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Errorf("read over %s: %v", conn.RemoteAddr(), err)
	}
}

// listen answers where an echo server listens until the test ends.
func listen(t *testing.T, address string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", address)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for buf := make([]byte, 1); ; {
					if _, err := conn.Read(buf); err != nil {
						return
					}
					conn.Write(buf)
				}
			}()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String())
}
