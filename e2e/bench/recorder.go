package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pillar-csi/pillar/storage/host"
)

// recorder runs the agent's programs and notes which they were and how long they took.
type recorder struct {
	mu   sync.Mutex
	ran  []program
	took time.Duration
}

// program is one run.
type program struct {
	argv   []string
	failed bool // an lvs of what is not there
}

// Run implements host.Runner.
func (r *recorder) Run(ctx context.Context, name string, args ...string) ([]byte, error) {
	begun := time.Now()
	out, err := host.Exec{}.Run(ctx, name, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took += time.Since(begun)
	r.ran = append(r.ran, program{append([]string{name}, args...), err != nil})
	return out, err
}

// take answers what ran since the last take.
func (r *recorder) take() (ran []program, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ran, took = r.ran, r.took
	r.ran, r.took = nil, 0
	return ran, took
}

// replay runs the programs again, one after the other. between is called with each before it
// runs.
func replay(ctx context.Context, ran []program, between func(argv []string) error) error {
	for _, p := range ran {
		if err := between(p.argv); err != nil {
			return err
		}
		_, err := host.Exec{}.Run(ctx, p.argv[0], p.argv[1:]...)
		if (err != nil) != p.failed {
			return fmt.Errorf("replay %s: %v, failed in the agent: %v", strings.Join(p.argv, " "), err, p.failed)
		}
	}
	return nil
}

// sized answers the programs with another size.
func sized(ran []program, bytes int64) []program {
	all := slices.Clone(ran)
	for i, p := range all {
		at := slices.Index(p.argv, "--size")
		if at < 0 {
			continue
		}
		all[i].argv = slices.Clone(p.argv)
		all[i].argv[at+1] = fmt.Sprintf("%db", bytes)
	}
	return all
}
