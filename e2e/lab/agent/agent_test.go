package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func serve(t *testing.T) *Client {
	dir := t.TempDir()
	s := &Server{Env: []string{"PATH=" + os.Getenv("PATH"), "WHO=guest"}, Scratch: dir, Home: dir}
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return &Client{Address: strings.TrimPrefix(server.URL, "http://")}
}

func TestClient_Run(t *testing.T) {
	c := serve(t)
	tests := map[string]struct {
		command Command
		out     string
		code    int
	}{
		"script":             {command: Command{Script: "echo $WHO; echo two >&2"}, out: "guest\ntwo\n"},
		"program":            {command: Command{Argv: []string{"echo", "a b"}}, out: "a b\n"},
		"own environment":    {command: Command{Script: "echo $X", Env: []string{"X=y"}}, out: "y\n"},
		"directory":          {command: Command{Script: "pwd", Dir: "/"}, out: "/\n"},
		"exit code":          {command: Command{Script: "exit 9"}, code: 9},
		"signal":             {command: Command{Script: "kill -TERM $$"}, code: 143},
		"no such program":    {command: Command{Argv: []string{"/no/such"}}, out: "lab agent: fork/exec /no/such: no such file or directory\n", code: 127},
		"daemon left behind": {command: Command{Script: "sleep 2 & echo on"}, out: "on\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code, err := c.Run(t.Context(), test.command, &out)
			if err != nil || out.String() != test.out || code != test.code {
				t.Errorf("Run() = %q, %d, %v, want %q, %d", out.String(), code, err, test.out, test.code)
			}
		})
	}
}

func TestClient_Run_streams(t *testing.T) {
	c := serve(t)
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(t.Context(), Command{Script: "echo first; sleep 0.2; echo last"}, w)
		w.CloseWithError(err)
		done <- err
	}()
	first := make([]byte, 6)
	if _, err := io.ReadFull(r, first); err != nil || string(first) != "first\n" {
		t.Fatalf("read %q, %v, want the first line", first, err)
	}
	select {
	case err := <-done:
		t.Errorf("the first line came only at the end (%v)", err)
	default:
	}
	if rest, err := io.ReadAll(r); string(rest) != "last\n" {
		t.Errorf("rest = %q, %v, want last", rest, err)
	}
}

func TestClient_Run_cancelled(t *testing.T) {
	c := serve(t)
	mark := filepath.Join(t.TempDir(), "alive")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, Command{Script: "while sleep 0.02; do touch " + mark + "; done"}, io.Discard)
		done <- err
	}()
	appears := func() bool { // within a time that is long for the loop above
		for range 100 {
			if os.Remove(mark) == nil {
				return true
			}
			time.Sleep(10 * time.Millisecond)
		}
		return false
	}
	for !appears() {
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run() = %v, want Canceled", err)
	}
	for range 10 { // the server learns of it a little later
		if !appears() {
			return
		}
	}
	t.Error("the command outlived its caller")
}

func TestClient_files(t *testing.T) {
	c := serve(t)
	path := filepath.Join(t.TempDir(), "new", "file")
	want := []byte("x\x00y")
	if err := c.Put(t.Context(), path, want, 0o640); err != nil {
		t.Fatal(err)
	}
	got, err := c.Get(t.Context(), path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("Get() = %q, %v, want %q", got, err, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode: %v, %v, want 640", info, err)
	}
	if _, err := c.Get(t.Context(), path+"x"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get(missing) = %v, want fs.ErrNotExist", err)
	}
}

func TestClient_Shell(t *testing.T) {
	c := serve(t)
	var out bytes.Buffer
	if err := c.Shell(t.Context(), strings.NewReader("stty size; echo $((6*7))$WHO; exit\n"), &out, "dumb", 24, 81); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"24 81", "42guest"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("Shell() printed %q, want %q in it", out.String(), want)
		}
	}
}
