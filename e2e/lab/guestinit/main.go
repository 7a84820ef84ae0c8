// Command guestinit is PID 1 of a lab guest and, started a second time by itself, its agent.
// PID 1 only makes the guest ready and reaps orphans; the agent waits for its own children
// only. In one process the reaper would steal the agent's exit codes.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
)

// agentArg in argv[0] starts the agent half.
const agentArg = "pillar-lab-agent"

func main() {
	if os.Args[0] == agentArg {
		if err := serve(); err != nil {
			fail(err)
		}
		return
	}
	if err := boot(); err != nil {
		fail(err)
	}
	reap()
}

// fail says why on the console and powers off: the lab sees its process end.
func fail(err error) {
	console, openErr := os.OpenFile("/dev/console", os.O_WRONLY, 0)
	if openErr != nil {
		console = os.Stdout
	}
	fmt.Fprintf(console, "%s%v\n", agent.Failed, err)
	syscall.Sync()
	syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF)
	os.Exit(1)
}

func boot() error {
	config, err := readConfig()
	if err != nil {
		return fmt.Errorf("read the boot configuration: %w", err)
	}
	if err := makeRoot(config); err != nil {
		return err
	}
	if err := mountKernelFilesystems(); err != nil {
		return err
	}
	os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	for _, step := range []func(agent.Boot) error{identity, network, devices, shares, modules, nodeSettings, startAgent} {
		if err := step(config); err != nil {
			return err
		}
	}
	return nil
}

func readConfig() (agent.Boot, error) {
	var config agent.Boot
	data, err := os.ReadFile("/config.json")
	if err != nil {
		return config, err
	}
	return config, json.Unmarshal(data, &config)
}

// startAgent starts this program again as the agent. The program's file is no longer below
// the root, /proc/self/exe still is it.
func startAgent(config agent.Boot) error {
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=/root", "LC_ALL=C", "PILLAR_LAB=1"}
	for k, v := range config.Env {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{agentArg}, Env: env, Stdout: os.Stdout, Stderr: os.Stderr}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the agent: %w", err)
	}
	return nil
}

// serve is the agent. Ready is printed after the socket listens.
func serve() error {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(agent.Port))
	if err != nil {
		return err
	}
	fmt.Println(agent.Ready)
	s := &agent.Server{Env: os.Environ()}
	return http.Serve(l, s.Handler())
}

// reap waits for every process that lost its parent, for ever.
func reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err == syscall.ECHILD { // the agent is always there
			fail(fmt.Errorf("the agent ended"))
		}
		_ = pid
	}
}
