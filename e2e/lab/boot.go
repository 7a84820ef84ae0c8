package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// bootWait is how long a guest may take to answer: 2-3 s on a free machine, 8 s in QEMU, and
// many times that when other work has the processors.
const bootWait = 3 * time.Minute

// killWait is how long a killed guest's processes may take to end: they free its memory.
const killWait = 20 * time.Second

// newGuest prepares a guest's directory, disks and tap.
func newGuest(l *Lab, spec GuestSpec) (*Guest, error) {
	ip := net.ParseIP(spec.Address).To4()
	if ip == nil {
		return nil, fmt.Errorf("address %q is not an IPv4 address", spec.Address)
	}
	if spec.MemoryMB == 0 {
		spec.MemoryMB = l.kind.memoryMB()
	}
	g := &Guest{Spec: spec, lab: l, dir: filepath.Join(l.cfg.Dir, spec.Name), tap: fmt.Sprintf("tap%d", ip[3])}
	g.agent = &agent.Client{Address: net.JoinHostPort(spec.Address, strconv.Itoa(agent.Port))}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(g.dir, "address"), []byte(g.agent.Address), 0o644); err != nil {
		return nil, err
	}
	if err := g.makeDisks(); err != nil {
		return nil, err
	}
	return g, makeTap(g.tap)
}

// Console returns the path of the console log of all boots of this guest.
func (g *Guest) Console() string { return filepath.Join(g.dir, "console.log") }

// Start boots a killed guest again, with the same disks, and returns when its agent answers.
func (g *Guest) Start(ctx context.Context) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, bootWait)
	defer cancel()
	console, err := os.OpenFile(g.Console(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer console.Close()
	at, err := console.Seek(0, 2)
	if err != nil {
		return err
	}
	life, err := g.launch(ctx, console, at)
	if err != nil {
		return fmt.Errorf("boot %s: %w", g.Spec.Name, err)
	}
	if err := g.await(ctx, life, at); err != nil {
		return errors.Join(fmt.Errorf("boot %s: %w (console: %s)", g.Spec.Name, err, g.Console()), g.Kill())
	}
	g.lab.printf("%s (%s) is up after %.1f s", g.Spec.Name, g.Spec.Address, time.Since(start).Seconds())
	return nil
}

// launch starts the guest's process in a session of its own and returns a context that ends
// with it. The console of this boot begins at offset at.
func (g *Guest) launch(ctx context.Context, console *os.File, at int64) (context.Context, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life != nil && g.life.Err() == nil {
		return nil, errors.New("it runs already")
	}
	disks, err := g.lockDisks()
	defer closeAll(disks)
	if err != nil {
		return nil, err
	}
	argv, env, err := g.lab.kind.command(ctx, g)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = g.dir
	cmd.Stdout, cmd.Stderr = console, console
	cmd.ExtraFiles = disks
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	g.cmd, g.life, g.booted = cmd, life, at
	go func() {
		cmd.Wait()
		end()
	}()
	return life, nil
}

// await returns when the console, from offset at on, says that the agent listens.
func (g *Guest) await(ctx, life context.Context, at int64) error {
	for {
		text, err := consoleSince(g.Console(), at)
		if err != nil {
			return err
		}
		if done, err := judgeConsole(text, g.lab.kind.troubles()); done || err != nil {
			return err
		}
		select {
		case <-life.Done():
			return fmt.Errorf("the guest's process ended: %s", lastLines(text))
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", ctx.Err(), lastLines(text))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func consoleSince(path string, at int64) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return string(data[min(at, int64(len(data))):]), nil
}

// judgeConsole reports whether a guest is ready, and an error when the console tells of
// something a test must not run with: a guest without its disk or network boots all the same.
func judgeConsole(text string, troubles []string) (ready bool, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, trouble := range append(troubles, agent.Failed) {
			if strings.Contains(line, trouble) {
				return false, errors.New(line)
			}
		}
		if strings.Contains(line, agent.Ready) {
			ready = true
		}
	}
	return ready, nil
}

func lastLines(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], "\n")
}

// Kill ends the guest as a power cut of its processes would: kill -9 of the whole group, then
// wait. What the guest had written to its disks stays in the host's page cache. A killed
// guest may Start again. Killing a dead guest does nothing.
func (g *Guest) Kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd == nil {
		return nil
	}
	if err := killGroup(g.cmd.Process.Pid); err != nil {
		return fmt.Errorf("kill %s: %w", g.Spec.Name, err)
	}
	<-g.life.Done()
	g.cmd = nil
	g.lab.printf("%s: killed", g.Spec.Name)
	return nil
}

// killGroup kills a process group and returns when none of it is left: its helpers, too, hold
// the disks and the tap.
func killGroup(pid int) error {
	for start := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		err := syscall.Kill(-pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return nil
		}
		if err == nil && time.Since(start) > killWait {
			err = errors.New("processes survive SIGKILL")
		}
		if err != nil {
			return err
		}
	}
}

// Reboot syncs the guest's disks, then is Kill and Start.
func (g *Guest) Reboot(ctx context.Context) error {
	if err := g.during(ctx, g.agent.Sync); err != nil {
		return fmt.Errorf("reboot: sync: %w", err)
	}
	if err := g.Kill(); err != nil {
		return err
	}
	return g.Start(ctx)
}

// bootConfig is what the guest's init is told.
func (g *Guest) bootConfig() agent.Boot {
	boot := agent.Boot{
		Name:    g.Spec.Name,
		Address: g.Spec.Address + "/24",
		Gateway: namespace.BridgeAddress,
		Load:    g.Spec.Modules,
		Hosts:   g.Spec.Hosts,
		Env:     g.Spec.Env,
	}
	for _, s := range g.shares() {
		boot.Shares = append(boot.Shares, agent.Share{Type: "hostfs", Source: s.host, Target: s.guest, ReadOnly: s.readOnly})
	}
	return boot
}

// share is a host directory a guest mounts.
type share struct {
	host, guest string
	readOnly    bool
}

// shares lists the lab's own and the spec's shares, outer paths before inner ones.
func (g *Guest) shares() []share {
	list := []share{{g.lab.HostDir, "/host", true}, {g.lab.CacheDir, "/cache", true}}
	for _, guest := range slices.Sorted(maps.Keys(g.Spec.ShareRO)) {
		list = append(list, share{g.Spec.ShareRO[guest], guest, true})
	}
	for _, guest := range slices.Sorted(maps.Keys(g.Spec.Share)) {
		list = append(list, share{g.Spec.Share[guest], guest, false})
	}
	slices.SortStableFunc(list, func(a, b share) int { return strings.Compare(a.guest, b.guest) })
	return list
}

// bootDirs are the directories guestinit mounts on before the guest has its root.
var bootDirs = []string{"dev", "proc", "low", "modules", "layer", "new"}

// writeBootFiles makes the directory a guest's kernel boots from: init, its configuration and the
// directories it mounts on.
func writeBootFiles(dir, init string, config agent.Boot) error {
	for _, sub := range bootDirs {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return err
		}
	}
	data, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o644); err != nil {
		return err
	}
	program := filepath.Join(dir, "init")
	if err := os.Remove(program); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Link(init, program)
}
