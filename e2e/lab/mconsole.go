package lab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

// What user-mode Linux and its management console say to each other, one datagram each:
// arch/um/drivers/mconsole.h. Numbers are in the machine's order.
const (
	mconsoleMagic   = 0xcafebabe
	mconsoleVersion = 2
	mconsoleData    = 512 // bytes of text, in both directions
)

// answerWait is how long a kernel may take to do what it is asked. An interrupt does that, so
// only a stopped or crashed one takes longer.
const answerWait = 10 * time.Second

// umlKeys ask for all messages on the console, the running task and the blocked ones: all that
// user-mode Linux can tell from within an interrupt. It refuses stack traces there, and asked
// for all tasks (t) it crashes at the first that is a worker: print_worker_info faults.
const umlKeys = "9pw"

// trace looks at the guest's process from outside, then asks its kernel.
func (u *uml) trace(g *Guest) (string, error) {
	where, err := backtrace(g.cmd.Process.Pid, u.kernel.Image)
	return where, errors.Join(err, sysrq(g, umlKeys))
}

// sysrq presses keys on the guest's management console. What they show is in the answers, and on
// the guest's own console.
func sysrq(g *Guest, keys string) error {
	socket := filepath.Join(g.lab.umlDir(), g.Spec.Name, "mconsole")
	local := &net.UnixAddr{Net: "unixgram", Name: "@" + g.dir}
	conn, err := net.DialUnix("unixgram", local, &net.UnixAddr{Net: "unixgram", Name: socket})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerWait)); err != nil {
		return err
	}
	for _, key := range keys {
		if _, err := conn.Write(mconsoleRequest("sysrq " + string(key))); err != nil {
			return err
		}
		if err := mconsoleAnswer(conn); err != nil {
			return fmt.Errorf("sysrq %c: %w", key, err)
		}
	}
	return nil
}

// mconsoleRequest is struct mconsole_request.
func mconsoleRequest(command string) []byte {
	var b []byte
	for _, n := range []uint32{mconsoleMagic, mconsoleVersion, uint32(len(command))} {
		b = binary.NativeEndian.AppendUint32(b, n)
	}
	text := make([]byte, mconsoleData)
	copy(text, command)
	return append(b, text...)
}

// mconsoleAnswer reads the parts of an answer, each a struct mconsole_reply: error, more, length
// and text.
func mconsoleAnswer(conn *net.UnixConn) error {
	for {
		part := make([]byte, 12+mconsoleData)
		n, err := conn.Read(part)
		if err != nil {
			return err
		}
		if n < 12 {
			return fmt.Errorf("answer of %d bytes", n)
		}
		if binary.NativeEndian.Uint32(part) != 0 {
			return errors.New(string(bytes.TrimRight(part[12:n], "\x00\n")))
		}
		if binary.NativeEndian.Uint32(part[4:]) == 0 {
			return nil
		}
	}
}
