package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"
)

// monitor is the socket of the guest's QEMU machine protocol.
func monitor(g *Guest) string { return filepath.Join(g.dir, "monitor") }

// qemuKeys are Documentation/admin-guide/sysrq.rst's: all messages onto the console, the
// processors, the blocked tasks, all tasks.
const qemuKeys = "9lwt"

// trace presses magic keys on the guest's keyboard.
func (q *qemu) trace(g *Guest) (string, error) { return "", sendKeys(monitor(g), qemuKeys) }

// sendKeys holds each key with alt and sysrq. QEMU takes it at once; the kernel has time to write
// before the caller ends the guest.
func sendKeys(monitor, keys string) error {
	conn, err := net.Dial("unix", monitor)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(answerWait)); err != nil {
		return err
	}
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	if err := in.Decode(new(struct{ QMP any })); err != nil { // the greeting
		return fmt.Errorf("read QEMU's greeting: %w", err)
	}
	if err := qmp(in, out, "qmp_capabilities", nil); err != nil {
		return err
	}
	for _, key := range keys {
		command := map[string]string{"command-line": "sendkey alt-sysrq-" + string(key)}
		if err := qmp(in, out, "human-monitor-command", command); err != nil {
			return err
		}
		time.Sleep(keyWait)
	}
	return nil
}

// keyWait is for one key's traces to be written: QEMU holds a key for 0.1 s.
const keyWait = time.Second

// qmp has QEMU do something. It may tell of events first.
func qmp(in *json.Decoder, out *json.Encoder, command string, arguments any) error {
	if arguments == nil {
		arguments = struct{}{}
	}
	if err := out.Encode(map[string]any{"execute": command, "arguments": arguments}); err != nil {
		return err
	}
	for {
		var answer struct {
			Return *json.RawMessage
			Error  *struct{ Desc string }
		}
		if err := in.Decode(&answer); err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		if answer.Error != nil {
			return errors.New(command + ": " + answer.Error.Desc)
		}
		if answer.Return != nil {
			return nil
		}
	}
}
