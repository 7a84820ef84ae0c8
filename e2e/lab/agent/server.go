package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// Server runs commands in the guest it runs in.
type Server struct {
	Env     []string // of everything it runs
	Scratch string   // directory for output that is on its way, empty means /run
	Home    string   // working directory of everything it runs, empty means /root
}

// Handler serves the agent's paths.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /exec", s.exec)
	mux.HandleFunc("POST /shell", s.shell)
	mux.HandleFunc("PUT /file/{path...}", putFile)
	mux.HandleFunc("GET /file/{path...}", getFile)
	mux.HandleFunc("POST /sync", func(http.ResponseWriter, *http.Request) { syscall.Sync() })
	return mux
}

// exec streams a command's output. The command writes to a file, not to a pipe: a daemon it
// leaves behind would hold a pipe, and the answer, open.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	var c Command
	body, err := io.ReadAll(r.Body) // to its end: only then does the server watch for the caller going away
	if err == nil {
		err = json.Unmarshal(body, &c)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := os.CreateTemp(cmp.Or(s.Scratch, "/run"), "exec-")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer out.Close()
	defer os.Remove(out.Name())
	w.Header().Set("Trailer", exitTrailer)
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w).Flush()
	code, err := s.run(r.Context(), c, out, flushWriter{w})
	if err != nil {
		fmt.Fprintf(w, "lab agent: %v\n", err)
	}
	w.Header().Set(exitTrailer, strconv.Itoa(code))
}

// run runs the command with its output in file and copies what appears there to w. When the
// caller goes away the command's process group is killed.
func (s *Server) run(ctx context.Context, c Command, file *os.File, w io.Writer) (int, error) {
	cmd := s.command(c)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	from, err := os.Open(file.Name())
	if err != nil {
		return 127, err
	}
	defer from.Close()
	pause := 5 * time.Millisecond
	for {
		select {
		case err := <-ended:
			io.Copy(w, from)
			return exitCode(err), nil
		case <-ctx.Done():
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			return 137, <-ended
		case <-time.After(pause):
		}
		if n, _ := io.Copy(w, from); n > 0 {
			pause = 5 * time.Millisecond
		} else if pause < 100*time.Millisecond {
			pause *= 2
		}
	}
}

func (s *Server) command(c Command) *exec.Cmd {
	argv := c.Argv
	if len(argv) == 0 {
		argv = []string{"/bin/bash", "-c", c.Script}
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = cmp.Or(c.Dir, s.Home, "/root")
	cmd.Env = append(append(cmd.Env, s.Env...), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// exitCode is a shell's $? for the way a program ended.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return 127
	case exit.ExitCode() < 0:
		return 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
	}
	return exit.ExitCode()
}

// flushWriter sends every write on its way at once.
type flushWriter struct{ http.ResponseWriter }

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	http.NewResponseController(f.ResponseWriter).Flush()
	return n, err
}

func putFile(w http.ResponseWriter, r *http.Request) {
	if err := replaceFile("/"+r.PathValue("path"), r.Header.Get(modeHeader), r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func replaceFile(path, mode string, from io.Reader) error {
	perm, err := strconv.ParseUint(mode, 8, 32)
	if err != nil {
		return fmt.Errorf("mode %q: %w", mode, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".put-")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails after the rename
	_, err = io.Copy(tmp, from)
	err = errors.Join(err, tmp.Chmod(fs.FileMode(perm)), tmp.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", tmp.Name(), err)
	}
	return os.Rename(tmp.Name(), path)
}

func getFile(w http.ResponseWriter, r *http.Request) {
	f, err := os.Open("/" + r.PathValue("path"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer f.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	io.Copy(w, f) // files of /sys and /proc do not know their size
}
