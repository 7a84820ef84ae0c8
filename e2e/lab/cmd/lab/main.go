// Command lab builds what the lab's guests boot, runs commands in a lab and tests in guests.
//
//	lab build [uml] [qemu] [zfs]   make the artifacts of a kind, or ZFS for guests of $PILLAR_LAB_KERNEL
//	lab enter -- COMMAND        run a command in namespaces of its own; KEEP=1 leaves them
//	lab exec BINARY ARGS        for `go test -exec`: run a test binary in a new guest
//	lab shell GUEST             a terminal in a guest of a running lab
//	lab stop                    end the labs that KEEP=1 left; those still at work are named
//
// LAB=NAME says which lab to enter where several run, and has stop end that one, busy or not.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pillar-csi/pillar/e2e/lab"
	"github.com/pillar-csi/pillar/e2e/lab/artifacts"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

const usage = `usage: lab build [uml] [qemu] [zfs] | enter -- COMMAND... | exec BINARY ARGS... | shell GUEST | stop`

func main() {
	namespace.Init()
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(args []string) (int, error) {
	if len(args) == 0 {
		return 2, errors.New(usage)
	}
	ctx := context.Background()
	switch verb, rest := args[0], args[1:]; verb {
	case "build":
		return 0, build(rest)
	case "enter":
		if len(rest) > 0 && rest[0] == "--" {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return 2, errors.New(usage)
		}
		return enter(ctx, os.Getenv("KEEP") == "1", rest...)
	case "exec":
		return execTest(ctx, rest)
	case "shell":
		return 0, shell(ctx, strings.Join(rest, ""))
	case "stop":
		return 0, stop()
	}
	return 2, errors.New(usage)
}

func build(kinds []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if len(kinds) == 0 {
		kinds = []string{string(lab.KindFromEnv())}
	}
	for _, kind := range kinds {
		var err error
		if kind == "zfs" {
			err = lab.BuildZFS(ctx, lab.KindFromEnv(), os.Stderr)
		} else {
			err = lab.Build(ctx, lab.Kind(kind), os.Stderr)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// enter makes sure that the artifacts are there, since there is no way to the mirrors from
// inside, and runs the command.
func enter(ctx context.Context, keep bool, argv ...string) (int, error) {
	if err := build(nil); err != nil {
		return 1, err
	}
	dir, err := artifacts.Dir()
	if err != nil {
		return 1, err
	}
	return namespace.Enter(ctx, namespace.Config{Cache: dir, Log: os.Stderr, Keep: keep}, argv...)
}

// stop says what it ended. A lab that goes on is an error: the caller may be about to remove
// what it uses.
func stop() error {
	dir, err := artifacts.Dir()
	if err != nil {
		return err
	}
	ended, busy, err := namespace.Stop(dir, os.Getenv(namespace.ChoiceVar))
	for _, l := range ended {
		fmt.Println("ended", l)
	}
	if err == nil && len(busy) > 0 {
		err = fmt.Errorf("still at work, end it with ctrl-C where it was started or with LAB=%s:%s", busy[0].Name, namespace.List(busy))
	}
	if err == nil && len(ended) == 0 {
		fmt.Println("no lab runs")
	}
	return err
}
