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
	"time"

	"github.com/pillar-csi/pillar/e2e"
	"github.com/pillar-csi/pillar/e2e/cluster"
	"github.com/pillar-csi/pillar/e2e/lab"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
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
	switch {
	case keep && ctx.Err() == nil:
		if err != nil {
			tell.failed(err)
		}
		err = errors.Join(err, s.stay(ctx))
	case err == nil:
		tell.say("Run it with KEEP=1 to keep the machines and look around.")
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

// stay says how to look around, and returns when the user has. A machine that goes down
// meanwhile, as by `reboot -f`, boots again.
func (s *story) stay(ctx context.Context) error {
	s.tell.say("")
	s.tell.say("The machines stay until ctrl-C or `make lab-stop`. In another terminal:")
	s.tell.command("make lab-shell GUEST=worker-1     # a shell in storage-1, worker-1 or worker-2; `reboot -f` boots it again")
	s.tell.command("bin/cluster kubectl get pods -A   # the cluster's kubectl; deploy/samples makes the next volume")
	if err := namespace.Keep(); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
		for _, g := range []*lab.Guest{s.storage.Guest, s.workers[0].Guest, s.workers[1].Guest} {
			if g.Alive() {
				continue
			}
			if err := s.again(ctx, g); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// again boots a machine that went down.
func (s *story) again(ctx context.Context, g *lab.Guest) error {
	if err := g.Kill(); err != nil { // what is left of it
		return err
	}
	if err := s.cluster.StartNode(ctx, g.Spec.Name); err != nil {
		return err
	}
	s.tell.say(g.Spec.Name + " is Ready again.")
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
