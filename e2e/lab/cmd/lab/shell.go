package main

import (
	"context"
	"fmt"
	"net"
	"os"

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
	l, address, err := namespace.FindGuest(dir, os.Getenv(namespace.ChoiceVar), name)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "lab: %s of %s\n", name, l)
	client := &agent.Client{Address: address, Dial: dialIn(l)}
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

// dialIn dials from within the network namespace of a lab.
func dialIn(l namespace.Lab) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := l.JoinNetwork(); err != nil {
			return nil, err
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
}
