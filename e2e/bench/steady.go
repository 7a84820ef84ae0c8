package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/pillar-csi/pillar/e2e/scale"
)

// What the controller may cost while nothing changes, for each resync period: nothing
// written, reads that do not grow with the volumes (its look after the certificate of the
// webhooks), and a call for every hundred of an agent's exports besides four to it.
const (
	steadyAgents   = 2
	steadyPeriods  = 2
	steadyReads    = 20
	steadyCalls    = 60
	steadyMemoryMB = 200 // the container's limit is 256 MiB
	steadyWait     = 8 * time.Minute
)

// steady measures few and many volumes, so that the growth can be seen.
func steady(ctx context.Context) error {
	for _, volumes := range []int{500, 5000} {
		if err := steadyWith(ctx, volumes); err != nil {
			return fmt.Errorf("steady state of %d volumes: %w", volumes, err)
		}
	}
	return nil
}

func steadyWith(ctx context.Context, volumes int) error {
	ctx, cancel := context.WithTimeout(ctx, steadyWait)
	defer cancel()
	dir, err := os.MkdirTemp("", "pillar-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := scale.Start(ctx, dir, scale.Config{Agents: steadyAgents})
	if err != nil {
		return err
	}
	defer w.Close()
	if err := w.Fill(ctx, volumes); err != nil {
		return err
	}
	cost, err := w.Steady(ctx, steadyPeriods)
	if err != nil {
		return err
	}
	for _, line := range []struct {
		name  string
		value float64
		unit  string
		goal  float64
	}{
		{"api_writes", cost.Writes, "per period", 0},
		{"api_reads", cost.Reads, "per period", steadyReads},
		{"agent_calls", cost.AgentCalls, "per period", steadyCalls},
		{"controller_memory", float64(cost.Controller.Memory) / (1 << 20), "MB", steadyMemoryMB},
	} {
		fmt.Printf("steady_%d_volumes_%s\t%.2f\t%s\t<=%.2f\n", volumes, line.name, line.value, line.unit, line.goal)
	}
	fmt.Fprintf(os.Stderr, "steady state of %d volumes: %.2f s CPU a period, at most %d MB; asked of the API server:\n%v",
		volumes, cost.Controller.CPU.Seconds(), cost.Controller.Peak>>20, cost.Asked)
	return nil
}
