// Package agents holds the controller's connections to storage agents, one per address,
// made when first used and shared by CSI calls and reconcilers. The agent's reconciler
// says which connection is its agent's (Watch) and when it has none (Forget): then one
// that no agent has any more is closed. Where no reconciler runs, gRPC hangs up after half
// an hour without a call.
package agents

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"

	"github.com/pillar-csi/pillar/crds/v1alpha1"
	"github.com/pillar-csi/pillar/roles/agentrpc"
)

// gated is part of an agent's refusal while its exports wait for the complete request.
const gated = "export restore pending"

// Pool hands out one client per address. The zero value is ready to use.
type Pool struct {
	mu      sync.Mutex
	clients map[string]*agentrpc.Client // by address
	watches map[string]watch            // by agent
	running sync.WaitGroup
}

// watch is a running agentrpc.Client.Watch.
type watch struct {
	client *agentrpc.Client
	stop   context.CancelFunc
}

// Client answers the connection to the agent's resolved address, or
// agentrpc.ErrUnavailable while it has none.
func (p *Pool) Client(pa *v1alpha1.PillarAgent) (*agentrpc.Client, error) {
	if pa.Status.ResolvedAddress == "" {
		return nil, fmt.Errorf("agent %s has no resolved address: %w", pa.Name, agentrpc.ErrUnavailable)
	}
	c, err := p.dial(pa.Status.ResolvedAddress)
	if err != nil {
		return nil, fmt.Errorf("agent %s: %w: %w", pa.Name, agentrpc.ErrUnavailable, err)
	}
	return c, nil
}

// dial answers the connection to address, with or without a port.
func (p *Pool) dial(address string) (*agentrpc.Client, error) {
	address = withPort(address)
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.clients[address]; c != nil {
		return c, nil
	}
	c, err := agentrpc.Dial(address, agentrpc.Config{})
	if err != nil {
		return nil, err
	}
	if p.clients == nil {
		p.clients = map[string]*agentrpc.Client{}
	}
	p.clients[address] = c
	return c, nil
}

// Watch has changed called each time the connection to the agent came up or broke, until
// another client is watched for that agent, or Forget or Close ends it. The connection to
// its earlier address is closed, and the calls on it end.
func (p *Pool) Watch(agent string, client *agentrpc.Client, changed func(agent string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watches[agent].client == client {
		return
	}
	p.forget(agent)
	if p.watches == nil {
		p.watches = map[string]watch{}
	}
	ctx, stop := context.WithCancel(context.Background())
	p.watches[agent] = watch{client, stop}
	p.running.Go(func() { client.Watch(ctx, func() { changed(agent) }) })
}

// Forget ends the watch and the connection of an agent that is gone or has no address;
// without one it does nothing.
func (p *Pool) Forget(agent string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget(agent)
}

func (p *Pool) forget(agent string) {
	w, ok := p.watches[agent]
	if !ok {
		return
	}
	w.stop()
	delete(p.watches, agent)
	for _, other := range p.watches {
		if other.client == w.client {
			return
		}
	}
	maps.DeleteFunc(p.clients, func(_ string, c *agentrpc.Client) bool { return c == w.client })
	w.client.Close() // its only error: closed already
}

// Close ends every connection and waits for the watches of them.
func (p *Pool) Close() error {
	defer p.running.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent := range p.watches {
		p.forget(agent)
	}
	var errs []error
	for _, c := range p.clients {
		errs = append(errs, c.Close())
	}
	p.clients = nil
	return errors.Join(errs...)
}

// Gated tells whether an agent refused because it waits for the complete request
// (block.md B-271); the caller then has it sent at once (B-279).
func Gated(err error) bool {
	return errors.Is(err, agentrpc.ErrUnavailable) && strings.Contains(err.Error(), gated)
}

// Host is the address without its port: where exports listen and workers dial.
func Host(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), fmt.Sprint(v1alpha1.DefaultAgentPort))
}
