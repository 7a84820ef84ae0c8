// Command demo is what `make demo` runs inside the lab: one volume from a claim to bytes on
// a storage node's disk and back to nothing, told step by step with the commands a user
// would type. It exits 0 only if everything it says was true.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pillar-csi/pillar/e2e"
	"github.com/pillar-csi/pillar/e2e/cluster"
	"github.com/pillar-csi/pillar/e2e/lab"
)

func main() {
	keep := flag.Bool("keep", false, "leave the machines running at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	tell := newTeller(os.Stdout)
	if err := run(ctx, tell, *keep); err != nil {
		tell.failed(err)
		os.Exit(1)
	}
}

// run boots, tells the story and takes everything down again.
func run(ctx context.Context, tell *teller, keep bool) (err error) {
	tell.step("Boot three machines and a Kubernetes control plane")
	l, err := lab.Open(ctx, lab.Config{Log: tell.quiet()})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	c, err := cluster.Start(ctx, l, cluster.Config{Workers: 2})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.WithoutCancel(ctx))) }()

	s := &story{tell: tell, cluster: c,
		storage: e2e.Storage{Guest: c.Node("storage-1")},
		workers: []e2e.Worker{{Guest: c.Node("worker-1")}, {Guest: c.Node("worker-2")}},
	}
	err = s.all(ctx)
	if err == nil {
		tell.summary()
	}
	if keep {
		tell.say("KEEP=1: the machines stay until ctrl-C. Look around from another terminal with `make lab-shell`.")
		<-ctx.Done()
	}
	return err
}

// story is the demo's plot; each chapter leaves what the next one needs.
type story struct {
	tell    *teller
	cluster *cluster.Cluster
	storage e2e.Storage
	workers []e2e.Worker
	sum     string // of what the first pod wrote
}

func (s *story) all(ctx context.Context) error {
	for _, chapter := range []func(context.Context) error{
		s.install, s.describe, s.claim, s.where, s.move, s.remove,
	} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) kubectl(ctx context.Context, args ...string) (string, error) {
	return s.tell.run(ctx, s.cluster, args...)
}

// do runs kubectl commands in order and stops at the first that fails.
func (s *story) do(ctx context.Context, commands ...[]string) error {
	for _, c := range commands {
		if _, err := s.kubectl(ctx, c...); err != nil {
			return err
		}
	}
	return nil
}

// look shows what a command prints on one of the machines.
func (s *story) look(ctx context.Context, g *lab.Guest, script string) (string, error) {
	out, err := g.Exec(ctx, script)
	s.tell.machine(g.Spec.Name, script, out)
	if err != nil {
		return out, fmt.Errorf("on %s: %w", g.Spec.Name, err)
	}
	return out, nil
}
