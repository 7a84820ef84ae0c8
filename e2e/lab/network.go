package lab

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/pillar-csi/pillar/e2e/lab/namespace"
)

// makeTap makes a guest's end of the network, a port of the lab's bridge.
func makeTap(name string) error {
	if err := removeTap(name); err != nil {
		return err
	}
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("make tap %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(tap); err != nil {
		return fmt.Errorf("switch on tap %s: %w", name, err)
	}
	return plug(name, true)
}

func removeTap(name string) error {
	tap, err := netlink.LinkByName(name)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(tap)
}

// plug joins a tap to the lab's bridge or takes it off. The tap itself stays on: user-mode Linux
// gives up its network card for good when a write to the tap fails.
func plug(name string, in bool) error {
	tap, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("tap %s: %w", name, err)
	}
	if !in {
		return netlink.LinkSetNoMaster(tap)
	}
	bridge, err := netlink.LinkByName(namespace.Bridge)
	if err != nil {
		return fmt.Errorf("bridge %s: %w", namespace.Bridge, err)
	}
	return netlink.LinkSetMaster(tap, bridge)
}

// macAddress gives each address of the lab's network its own card.
func macAddress(address string) string {
	ip := net.ParseIP(address).To4()
	return fmt.Sprintf("52:54:00:42:%02x:%02x", ip[2], ip[3])
}
