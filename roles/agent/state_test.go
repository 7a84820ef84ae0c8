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
	"time"

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

func TestCalls_drain(t *testing.T) {
	c := newCalls()
	if err := c.enter(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if again, err := c.drain(short); again || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drain with a call in flight = %v, %v, want a deadline", again, err)
	}
	if err := c.enter(); !errors.Is(err, agentrpc.ErrUnavailable) {
		t.Errorf("enter while draining = %v, want ErrUnavailable", err)
	}
	c.leave()
	if again, err := c.drain(t.Context()); !again || err != nil {
		t.Errorf("second drain = %v, %v, want again", again, err)
	}
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
