package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// shell opens a terminal in a guest. Without a terminal of its own it feeds standard input to
// the guest's bash.
func shell(ctx context.Context, name string) error {
	dir, err := artifacts.Dir()
	if err != nil {
		return err
	}
	address, pid, err := namespace.FindGuest(dir, name)
	if err != nil {
		return err
	}
	client := &agent.Client{Address: address, Dial: dialIn(pid)}
	rows, columns := 0, 0
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		if columns, rows, err = term.GetSize(fd); err != nil {
			return err
		}
		old, err := term.MakeRaw(fd)
		if err != nil {
			return err
		}
		defer term.Restore(fd, old)
	}
	return client.Shell(ctx, os.Stdin, os.Stdout, os.Getenv("TERM"), rows, columns)
}

// dialIn dials from within the network namespace of another process: a socket belongs to the
// namespace of the thread that made it.
func dialIn(pid int) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		runtime.LockOSThread() // never unlocked: the thread is in the wrong namespace afterwards
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
		if err != nil {
			return nil, err
		}
		defer ns.Close()
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return nil, fmt.Errorf("enter the lab's network: %w", err)
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}
