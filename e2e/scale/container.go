package scale

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pillar-csi/pillar/e2e/cluster"
)

// restartDelay is between the end of a program and its next start. A kubelet waits 10 s
// from the second time on; a sidecar that lost its driver twice is not what is measured.
const restartDelay = time.Second

// container runs one program of the controller's pod and, as a kubelet does, runs it again
// when it ends.
type container struct {
	name      string
	dir, path string
	env, args []string

	mu      sync.Mutex
	process *cluster.Process
	starts  int
}

// run keeps the program running until ctx ends, then stops it.
func (c *container) run(ctx context.Context) error {
	for {
		p, err := cluster.StartProcess(c.dir, c.path, c.env, c.args...)
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.process = p
		c.starts++
		c.mu.Unlock()
		select {
		case <-p.Done():
		case <-ctx.Done():
			p.Stop(context.WithoutCancel(ctx))
			return nil
		}
		select {
		case <-time.After(restartDelay):
		case <-ctx.Done():
			return nil
		}
	}
}

// kill ends the program as a crash would; run starts it again.
func (c *container) kill() {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if p != nil {
		p.Kill()
	}
}

// Usage is what a program holds and has used.
type Usage struct {
	Memory, Peak int64         // resident now and at most, bytes: VmRSS and VmHWM of proc(5)
	CPU          time.Duration // user and system time, which does not depend on what else runs
}

func (c *container) usage() (Usage, error) {
	c.mu.Lock()
	p := c.process
	c.mu.Unlock()
	if p == nil {
		return Usage{}, fmt.Errorf("%s does not run", c.name)
	}
	return usageOf(p.PID())
}

// ticks of stat's times in a second: USER_HZ, 100 on every architecture Go knows.
const ticks = 100

func usageOf(pid int) (Usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	return parseUsage(string(status), string(stat)), nil
}

// parseUsage reads /proc/PID/status and /proc/PID/stat.
func parseUsage(status, stat string) (u Usage) {
	for line := range strings.Lines(status) {
		field, value, _ := strings.Cut(line, ":")
		kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch field {
		case "VmRSS":
			u.Memory = kib << 10
		case "VmHWM":
			u.Peak = kib << 10
		}
	}
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:]) // the name before may hold anything
	for i := 11; i <= 12 && i < len(fields); i++ {                  // utime, stime: fields 14 and 15
		n, _ := strconv.ParseInt(fields[i], 10, 64)
		u.CPU += time.Duration(n) * time.Second / ticks
	}
	return u
}
