package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/pillar-csi/pillar/roles/agentpb"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

func TestState_oneAgent(t *testing.T) {
	dir := t.TempDir() + "/agent"
	first, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	who := fmt.Sprintf("%s is in use by another agent (process %d on ", dir, os.Getpid())
	if _, err := openState(dir); err == nil || !strings.Contains(err.Error(), who) {
		t.Errorf("second openState = %v, want a refusal with %q", err, who)
	}
	first.close()
	again, err := openState(dir)
	if err != nil {
		t.Fatalf("openState after the first closed = %v", err)
	}
	again.close()
}

func TestState_flushed(t *testing.T) {
	s, err := openState(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.flushed(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} {
		if got, err := s.takeFlushed(); got != want || err != nil {
			t.Errorf("takeFlushed = %v, %v, want %v", got, err, want)
		}
	}
}

// B-280: a drain waits for the calls in flight, a second one does not, and neither lets any
// other call in. Its marker is there once the calls have ended, whoever waited for them.
func TestServer_Drain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, err := openState(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer st.close()
		s := &server{log: zap.NewNop(), state: st, calls: newCalls()}
		end := make(chan struct{})
		go s.callOf(t, agentpb.AgentService_ListExports_FullMethodName, func() (any, error) { <-end; return nil, nil })
		synctest.Wait()

		first, gone := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- second(s.drainCall(t, first)) }()
		synctest.Wait()
		if got, err := s.drainCall(t, t.Context()); got.GetMessage() != "was already drained" || err != nil {
			t.Errorf("second Drain while a call runs = %v, %v, want an answer at once", got, err)
		}
		s.refusesOthers(t)
		gone()
		if err := <-left; agentrpc.CodeOf(err).String() != "Canceled" {
			t.Errorf("Drain whose caller left = %v, want canceled", err)
		}
		if flushed, err := st.takeFlushed(); flushed || err != nil {
			t.Errorf("marker while a call runs: %v, %v, want none", flushed, err)
		}
		close(end)
		if err := s.flush(t.Context()); err != nil { // as on SIGTERM
			t.Errorf("flush = %v", err)
		}
		if flushed, err := st.takeFlushed(); !flushed || err != nil {
			t.Errorf("marker after the drain: %v, %v, want it there", flushed, err)
		}
	})
}

func (s *server) refusesOthers(t *testing.T) {
	for _, m := range agentpb.AgentService_ServiceDesc.Methods {
		method := "/" + agentpb.AgentService_ServiceDesc.ServiceName + "/" + m.MethodName
		if method == agentpb.AgentService_Drain_FullMethodName {
			continue
		}
		_, err := s.callOf(t, method, func() (any, error) { t.Errorf("%s ran", m.MethodName); return nil, nil })
		if agentrpc.CodeOf(err).String() != "Unavailable" {
			t.Errorf("%s of a drained agent = %v, want Unavailable", m.MethodName, err)
		}
	}
}

// callOf sends a call past the server's interceptor, to a handler.
func (s *server) callOf(t *testing.T, method string, handler func() (any, error)) (any, error) {
	return s.intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: method}, func(context.Context, any) (any, error) { return handler() })
}

func (s *server) drainCall(t *testing.T, ctx context.Context) (*agentpb.DrainResponse, error) {
	resp, err := s.callOf(t, agentpb.AgentService_Drain_FullMethodName, func() (any, error) { return s.Drain(ctx, &agentpb.DrainRequest{}) })
	got, _ := resp.(*agentpb.DrainResponse)
	return got, err
}

func TestState_prepares(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "nvmet-identity", ".vg0%2Fpvc-1.json.1.tmp")
	if err := errors.Join(os.Mkdir(filepath.Dir(left), 0o700), os.WriteFile(left, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s, err := openState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a write that a crash left behind is still there: %v", err)
	}
}
