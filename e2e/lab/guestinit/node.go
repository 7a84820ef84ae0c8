package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/e2e/lab/agent"
)

func program(argv ...string) error {
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// identity names the machine. Its machine-id is made once and then lives on its disk.
func identity(config agent.Boot) error {
	if err := unix.Sethostname([]byte(config.Name)); err != nil {
		return err
	}
	id, err := os.ReadFile("/etc/machine-id")
	if err != nil {
		return err
	}
	if len(id) == 0 {
		var random [16]byte
		rand.Read(random[:])
		id = []byte(hex.EncodeToString(random[:]) + "\n")
	}
	host, _, _ := strings.Cut(config.Address, "/")
	hosts := "127.0.0.1 localhost\n" + host + " " + config.Name + "\n"
	for _, name := range slices.Sorted(maps.Keys(config.Hosts)) {
		hosts += config.Hosts[name] + " " + name + "\n"
	}
	return errors.Join(
		os.WriteFile("/etc/machine-id", id, 0o444),
		os.WriteFile("/etc/hostname", []byte(config.Name+"\n"), 0o644),
		os.WriteFile("/etc/hosts", []byte(hosts), 0o644))
}

func network(config agent.Boot) error {
	if err := up("lo", ""); err != nil {
		return err
	}
	if err := up(config.Interface, config.Address); err != nil {
		return err
	}
	route := &netlink.Route{Gw: net.ParseIP(config.Gateway)}
	if err := netlink.RouteReplace(route); err != nil {
		return fmt.Errorf("default route by %s: %w", config.Gateway, err)
	}
	return nil
}

// up sets an interface's address, if any, and switches it on.
func up(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("network interface %s: %w", name, err)
	}
	if address != "" {
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrReplace(link, a); err != nil {
			return fmt.Errorf("address %s: %w", address, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("switch on %s: %w", name, err)
	}
	return nil
}

// nodeSettings are what a kubelet needs and a distribution's init would have set.
func nodeSettings(agent.Boot) error {
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return err
	}
	for name := range strings.FieldsSeq(string(controllers)) {
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+"+name), 0o644); err != nil {
			return fmt.Errorf("hand down cgroup controller %s: %w", name, err)
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	return clockSpeed()
}

// clockSpeed gives /proc/cpuinfo the line that a kubelet's cAdvisor insists on; user-mode Linux
// has none.
func clockSpeed() error {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || bytes.Contains(info, []byte("cpu MHz")) {
		return err
	}
	var out strings.Builder
	for line := range strings.Lines(string(info)) {
		out.WriteString(line)
		if strings.HasPrefix(line, "model name") {
			out.WriteString("cpu MHz\t\t: 2000.000\nphysical id\t: 0\ncore id\t\t: 0\n")
		}
	}
	if err := os.WriteFile("/run/cpuinfo", []byte(out.String()), 0o444); err != nil {
		return err
	}
	return mount("/run/cpuinfo", "/proc/cpuinfo", "", unix.MS_BIND, "")
}
