package agents

import (
	"errors"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

// listen answers a server without services and how many connections it has.
func listen(t *testing.T) (address string, connections func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counted{Listener: l, open: make(chan int, 1)}
	c.open <- 0
	server := grpc.NewServer(agentrpc.ServerOptions()...)
	go server.Serve(c)
	t.Cleanup(server.Stop)
	return l.Addr().String(), func() int { n := <-c.open; c.open <- n; return n }
}

type counted struct {
	net.Listener
	open chan int
}

func (c *counted) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.open <- <-c.open + 1
	return &once{Conn: conn, closed: func() { c.open <- <-c.open - 1 }}, nil
}

type once struct {
	net.Conn
	closed func()
}

func (o *once) Close() error {
	if o.closed != nil {
		o.closed()
		o.closed = nil
	}
	return o.Conn.Close()
}

func at(name, address string) *v1alpha1.PillarAgent {
	pa := &v1alpha1.PillarAgent{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pa.Status.ResolvedAddress = address
	return pa
}

func wantConnections(t *testing.T, what string, connections func() int, want int) {
	t.Helper()
	for range 500 {
		if connections() == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%s: %d connections, want %d", what, connections(), want)
}

// TestPool_Watch: an agent that moved, or whose object is gone, leaves no connection
// behind, unless another agent has it, too.
func TestPool_Watch(t *testing.T) {
	p := &Pool{}
	defer p.Close()
	first, onFirst := listen(t)
	second, onSecond := listen(t)
	watch := func(name, address string) *agentrpc.Client {
		c, err := p.Client(at(name, address))
		if err != nil {
			t.Fatal(err)
		}
		p.Watch(name, c, func(string) {})
		return c
	}
	a := watch("a", first)
	if b := watch("b", first); a != b {
		t.Error("one address has two connections")
	}
	wantConnections(t, "two agents at one address", onFirst, 1)
	watch("a", second)
	wantConnections(t, "a moved", onSecond, 1)
	wantConnections(t, "b is still there", onFirst, 1)
	p.Forget("b")
	p.Forget("b")
	wantConnections(t, "b is gone", onFirst, 0)
	if again := watch("b", first); again == a {
		t.Error("the closed connection is handed out again")
	}
	wantConnections(t, "b is back", onFirst, 1)
	if err := p.Close(); err != nil {
		t.Errorf("Close = %v", err)
	}
	wantConnections(t, "all closed", onSecond, 0)
}

func TestPool_Client_noAddress(t *testing.T) {
	p := &Pool{}
	if _, err := p.Client(at("a", "")); !errors.Is(err, agentrpc.ErrUnavailable) {
		t.Errorf("Client without an address = %v, want ErrUnavailable", err)
	}
}

func TestHost(t *testing.T) {
	tests := map[string]struct{ host, withPort string }{
		"10.0.0.1":       {"10.0.0.1", "10.0.0.1:9500"},
		"10.0.0.1:9501":  {"10.0.0.1", "10.0.0.1:9501"},
		"fd00::1":        {"fd00::1", "[fd00::1]:9500"},
		"[fd00::1]":      {"fd00::1", "[fd00::1]:9500"},
		"[fd00::1]:9501": {"fd00::1", "[fd00::1]:9501"},
	}
	for address, want := range tests {
		if host, full := Host(address), withPort(address); host != want.host || full != want.withPort {
			t.Errorf("%s: host %s, dialled %s, want %+v", address, host, full, want)
		}
	}
}
