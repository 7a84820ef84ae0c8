package memory

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// born answers what appears with a new object: its attributes as the kernel shows them
// before any write, and its default directories.
func born(name string) (attrs map[string]string, dirs []string, errno syscall.Errno) {
	switch parts := strings.Split(name, "/"); {
	case match(parts, "nvmet/hosts/*"):
		return nil, nil, 0
	case match(parts, "nvmet/subsystems/*"):
		return map[string]string{
			"attr_allow_any_host": "0",
			"attr_serial":         "5f1d6c0b9a3e48277d10", // the kernel draws a random one
		}, []string{"allowed_hosts", "namespaces"}, 0
	case match(parts, "nvmet/subsystems/*/namespaces/*"):
		if n, err := strconv.ParseUint(parts[4], 0, 32); err != nil || n == 0 || n == 1<<32-1 {
			return nil, nil, syscall.EINVAL
		}
		return map[string]string{
			"device_path":  "(null)",
			"device_uuid":  "b1a7c9d2-0e64-4f3a-8f55-3c2f9f6e1d70", // random too
			"device_nguid": "00000000-0000-0000-0000-000000000000",
			"enable":       "0",

			"revalidate_size": "", // only takes writes
		}, nil, 0
	case match(parts, "nvmet/ports/*"):
		if _, err := strconv.ParseUint(parts[2], 0, 16); err != nil {
			return nil, nil, syscall.EINVAL
		}
		return map[string]string{
			"addr_trtype": "", "addr_adrfam": "", "addr_traddr": "", "addr_trsvcid": "",
			"param_inline_data_size": "-1",
		}, []string{"subsystems"}, 0
	}
	return nil, nil, syscall.EPERM
}

func match(parts []string, pattern string) bool {
	want := strings.Split(pattern, "/")
	if len(parts) != len(want) {
		return false
	}
	for i, w := range want {
		if w != "*" && w != parts[i] {
			return false
		}
	}
	return true
}

// allowLink is allow_link of the two directories that take links.
func (k *Kernel) allowLink(target, name string) syscall.Errno {
	parts, to := strings.Split(name, "/"), strings.Split(target, "/")
	switch {
	case match(parts, "nvmet/subsystems/*/allowed_hosts/*"):
		open := k.nodes[path.Join(path.Dir(path.Dir(name)), "attr_allow_any_host")].value == "1"
		if !match(to, "nvmet/hosts/*") || open {
			return syscall.EINVAL
		}
	case match(parts, "nvmet/ports/*/subsystems/*"):
		if !match(to, "nvmet/subsystems/*") {
			return syscall.EINVAL
		}
		return k.listen(path.Dir(path.Dir(name)))
	default:
		return syscall.EPERM
	}
	return 0
}

// listen starts a port with its first link.
func (k *Kernel) listen(port string) syscall.Errno {
	if k.live(port) {
		return 0
	}
	get := func(port, attr string) string { return k.nodes[port+"/"+attr].value }
	addr, err := netip.ParseAddr(get(port, "addr_traddr"))
	if _, number := strconv.ParseUint(get(port, "addr_trsvcid"), 0, 16); number != nil || err != nil {
		return syscall.EINVAL
	}
	if get(port, "addr_trtype") == "" || get(port, "addr_adrfam") != family(addr) {
		return syscall.EINVAL
	}
	if nobodys.Contains(addr) {
		return syscall.EADDRNOTAVAIL
	}
	for name, n := range k.below("nvmet/ports") {
		if !n.dir || path.Dir(name) != "nvmet/ports" || name == port || !k.live(name) {
			continue
		}
		if get(name, "addr_traddr") == get(port, "addr_traddr") && get(name, "addr_trsvcid") == get(port, "addr_trsvcid") {
			return syscall.EADDRINUSE
		}
	}
	if inline := k.nodes[port+"/param_inline_data_size"]; strings.HasPrefix(inline.value, "-") {
		inline.value = "16384"
	}
	return 0
}

// nobodys are the addresses that this machine does not have: TEST-NET-3 of RFC 5737.
var nobodys = netip.MustParsePrefix("203.0.113.0/24")

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "ipv4"
	}
	return "ipv6"
}

func (k *Kernel) live(port string) bool {
	for _, n := range k.below(port + "/subsystems") {
		if n.target != "" {
			return true
		}
	}
	return false
}

// store is the store function of an attribute: it answers how the value is shown.
func (k *Kernel) store(name, value string) (string, syscall.Errno) {
	dir, attr := path.Dir(name), path.Base(name)
	switch attr {
	case "attr_allow_any_host":
		if !isSwitch(value) || value == "1" && len(k.below(dir+"/allowed_hosts")) > 0 {
			return "", syscall.EINVAL
		}
		return value, 0
	case "attr_serial":
		if len(value) == 0 || len(value) > 20 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return "", syscall.EINVAL
		}
		return fmt.Sprintf("%-20s", value), 0
	case "enable":
		device := k.nodes[dir+"/device_path"].value
		switch {
		case !isSwitch(value), value == "1" && device == "(null)":
			return "", syscall.EINVAL
		case value == "1" && device == "/dev/absent":
			return "", syscall.ENOENT
		}
		return value, 0
	case "revalidate_size":
		if !isSwitch(value) || k.nodes[dir+"/enable"].value != "1" {
			return "", syscall.EINVAL
		}
		return "", 0
	case "device_path", "device_uuid", "device_nguid":
		if k.nodes[dir+"/enable"].value == "1" {
			return "", syscall.EBUSY
		}
		return storeDevice(attr, value)
	}
	if k.live(dir) {
		return "", syscall.EACCES
	}
	return storePort(attr, value)
}

func isSwitch(value string) bool { return value == "0" || value == "1" }

func storeDevice(attr, value string) (string, syscall.Errno) {
	if attr == "device_path" {
		if value == "" {
			return "", syscall.EINVAL
		}
		return value, 0
	}
	b, err := hex.DecodeString(strings.ReplaceAll(value, "-", ""))
	if err != nil || len(b) != 16 || attr == "device_uuid" && len(value) != 36 {
		return "", syscall.EINVAL
	}
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]), 0
}

// storePort stores text into an address or a service as it is: who listens reads it.
func storePort(attr, value string) (string, syscall.Errno) {
	ok := true
	switch attr {
	case "addr_trtype":
		ok = slices.Contains([]string{"rdma", "fc", "tcp", "loop"}, value)
	case "addr_adrfam":
		ok = slices.Contains([]string{"pcie", "ipv4", "ipv6", "ib", "fc", "loop"}, value)
	case "param_inline_data_size":
		_, err := strconv.ParseInt(value, 0, 32)
		ok = err == nil
	}
	if !ok {
		return "", syscall.EINVAL
	}
	return value, 0
}
