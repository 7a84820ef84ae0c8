package agent

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// shell hijacks the connection and joins it to a bash on a new terminal. The request may give
// the terminal's size as Lab-Size: ROWSxCOLUMNS.
func (s *Server) shell(w http.ResponseWriter, r *http.Request) {
	pty, tty, err := openTerminal()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer pty.Close()
	defer tty.Close()
	setSize(pty, r.Header.Get(sizeHeader))
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: terminal\r\n\r\n")
	cmd := exec.Command("/bin/bash")
	cmd.Dir, cmd.Env = cmp.Or(s.Home, "/root"), append([]string{"TERM=" + r.Header.Get(termHeader)}, s.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(conn, "start bash: %v\r\n", err)
		return
	}
	tty.Close()
	go func() {
		io.Copy(pty, buffered)
		syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP) // the user's terminal is gone
	}()
	copied := make(chan struct{})
	go func() {
		io.Copy(conn, pty) // ends when nothing has the terminal open any more
		close(copied)
	}()
	cmd.Wait()
	select {
	case <-copied:
	case <-time.After(lastWords): // a program left behind has it
	}
}

// lastWords is how long output may take to follow when bash has ended.
const lastWords = time.Second

const (
	sizeHeader = "Lab-Size"
	termHeader = "Lab-Term"
)

// openTerminal returns both sides of a new pseudo terminal: ptmx(4).
func openTerminal() (pty, tty *os.File, err error) {
	pty, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(pty.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		pty.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return pty, tty, nil
}

// setSize takes "24x80"; anything else leaves the kernel's default.
func setSize(pty *os.File, size string) {
	rows, columns, _ := strings.Cut(size, "x")
	r, err1 := strconv.ParseUint(rows, 10, 16)
	c, err2 := strconv.ParseUint(columns, 10, 16)
	if err1 == nil && err2 == nil {
		unix.IoctlSetWinsize(int(pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(r), Col: uint16(c)})
	}
}
