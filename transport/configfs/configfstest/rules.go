package configfstest

import (
	"context"
	"errors"
	"syscall"
	"testing"

	"github.com/pillar-csi/pillar/transport/configfs"
)

// System is a configfs to hold the rules to.
type System struct {
	FS     configfs.FS
	Device string // a block device nobody uses
}

// Names of the objects that Rules makes and removes again.
const (
	ruleSubsystem = "nqn.2026-01.com.bhyoo.pillar-test:rules"
	ruleHost      = "nqn.2026-01.com.bhyoo.pillar-test:host"
	rulePort      = "40999"
)

// rig is a subsystem with a namespace, a host and a port, not connected to each other.
type rig struct {
	t                     *testing.T
	ctx                   context.Context
	sub, ns, host, port   configfs.Dir
	allowed, served, root configfs.Dir
	device                string
	fs                    configfs.FS
}

func newRig(t *testing.T, s System) *rig {
	nvmet := configfs.On(s.FS).Sub("nvmet")
	r := &rig{t: t, ctx: t.Context(), root: nvmet, device: s.Device, fs: s.FS}
	r.sub, r.host = nvmet.Sub("subsystems", ruleSubsystem), nvmet.Sub("hosts", ruleHost)
	r.port, r.ns = nvmet.Sub("ports", rulePort), r.sub.Sub("namespaces", "1")
	r.allowed, r.served = r.sub.Sub("allowed_hosts"), r.port.Sub("subsystems")
	for _, d := range []configfs.Dir{r.sub, r.ns, r.host, r.port} {
		r.must(d.Mkdir(r.ctx))
	}
	t.Cleanup(func() { r.remove(context.WithoutCancel(r.ctx)) })
	return r
}

func (r *rig) remove(ctx context.Context) {
	r.must(r.served.Unlink(ctx, ruleSubsystem))
	r.must(r.allowed.Unlink(ctx, ruleHost))
	for _, d := range []configfs.Dir{r.ns, r.sub, r.host, r.port} {
		r.must(d.Rmdir(ctx))
	}
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// refused expects an errno.
func (r *rig) refused(err error, want syscall.Errno) {
	r.t.Helper()
	if !errors.Is(err, want) {
		r.t.Fatalf("got error %v, want %v", err, want)
	}
}

// shows expects an attribute's value.
func (r *rig) shows(d configfs.Dir, attr, want string) {
	r.t.Helper()
	if got, err := d.Read(attr); err != nil || got != want {
		r.t.Fatalf("%s/%s = %q, %v, want %q", d.Name(), attr, got, err, want)
	}
}

// enable backs the namespace with the spare device and enables it.
func (r *rig) enable() {
	r.t.Helper()
	r.must(r.ns.Set(r.ctx, "device_path", r.device))
	r.must(r.ns.Set(r.ctx, "enable", "1"))
}

// listen gives the port an address and links the subsystem.
func (r *rig) listen() {
	r.t.Helper()
	r.address("127.0.0.1")
	r.must(r.served.Link(r.ctx, r.sub))
}

func (r *rig) address(ip string) {
	r.t.Helper()
	for attr, value := range address(ip) {
		r.must(r.port.Set(r.ctx, attr, value))
	}
}

// address is all that a port needs to listen.
func address(ip string) map[string]string {
	return map[string]string{"addr_trtype": "tcp", "addr_adrfam": "ipv4", "addr_traddr": ip, "addr_trsvcid": rulePort}
}

// rules are the kernel's, by what they say.
var rules = map[string]func(*rig){
	"a namespace appears with its attributes": func(r *rig) {
		r.shows(r.ns, "device_path", "(null)")
		r.shows(r.ns, "device_nguid", "00000000-0000-0000-0000-000000000000")
		r.shows(r.ns, "enable", "0")
	},
	"a subsystem appears closed": func(r *rig) { r.shows(r.sub, "attr_allow_any_host", "0") },
	"a port appears without an address": func(r *rig) {
		for _, attr := range []string{"addr_trtype", "addr_adrfam", "addr_traddr", "addr_trsvcid"} {
			r.shows(r.port, attr, "")
		}
		r.shows(r.port, "param_inline_data_size", "-1")
	},
	"a namespace has a number but the first and the last": func(r *rig) {
		for _, name := range []string{"0", "4294967295", "x"} {
			r.refused(r.sub.Sub("namespaces", name).Mkdir(r.ctx), syscall.EINVAL)
		}
	},
	"a port has a 16 bit number": func(r *rig) {
		for _, name := range []string{"65536", "x"} {
			r.refused(r.root.Sub("ports", name).Mkdir(r.ctx), syscall.EINVAL)
		}
	},
	"nothing is made outside the object directories": func(r *rig) {
		r.refused(r.sub.Sub("other").Mkdir(r.ctx), syscall.EPERM)
	},
	"nothing is made below what is missing": func(r *rig) {
		r.refused(r.fs.Mkdir(r.root.Sub("subsystems", "absent", "namespaces", "1").Name()), syscall.ENOENT)
	},
	"what exists is not made again": func(r *rig) {
		r.refused(r.fs.Mkdir(r.sub.Name()), syscall.EEXIST)
		r.must(r.allowed.Link(r.ctx, r.host))
		r.refused(r.fs.Symlink(r.host.Name(), r.allowed.Sub(ruleHost).Name()), syscall.EEXIST)
	},
	"what is missing is not removed, linked, read or written": func(r *rig) {
		absent := r.sub.Sub("absent").Name()
		r.refused(r.fs.Rmdir(absent), syscall.ENOENT)
		r.refused(r.fs.Unlink(absent), syscall.ENOENT)
		r.refused(r.fs.Symlink(absent, r.allowed.Sub("absent").Name()), syscall.ENOENT)
		r.refused(r.fs.WriteFile(absent, []byte("1")), syscall.ENOENT)
		_, read := r.fs.ReadFile(absent)
		r.refused(read, syscall.ENOENT)
		_, list := r.fs.ReadDir(absent)
		r.refused(list, syscall.ENOENT)
		_, look := r.fs.IsDir(absent)
		r.refused(look, syscall.ENOENT)
	},
	"links are made for hosts and ports only": func(r *rig) {
		r.refused(r.fs.Symlink(r.host.Name(), r.sub.Sub("link").Name()), syscall.EPERM)
	},
	"only links are unlinked": func(r *rig) {
		r.refused(r.fs.Unlink(r.ns.Sub("enable").Name()), syscall.EPERM)
		r.refused(r.fs.Unlink(r.ns.Name()), syscall.EISDIR)
	},
	"a directory is no attribute": func(r *rig) {
		r.refused(r.fs.WriteFile(r.ns.Name(), []byte("1")), syscall.EISDIR)
		_, err := r.fs.ReadFile(r.ns.Name())
		r.refused(err, syscall.EISDIR)
		r.refused(r.fs.Rmdir(r.ns.Sub("enable").Name()), syscall.ENOTDIR)
		_, err = r.fs.ReadDir(r.ns.Sub("enable").Name())
		r.refused(err, syscall.ENOTDIR)
	},
	"a link is not a directory": func(r *rig) {
		r.must(r.allowed.Link(r.ctx, r.host))
		if is, err := r.fs.IsDir(r.allowed.Sub(ruleHost).Name()); is || err != nil {
			r.t.Errorf("IsDir of a link = %v, %v, want no", is, err)
		}
		_, err := r.fs.ReadFile(r.allowed.Sub(ruleHost).Name())
		r.refused(err, syscall.EISDIR)
	},
	"a switch is on or off": func(r *rig) {
		r.enable()
		for attr, dir := range map[string]configfs.Dir{"attr_allow_any_host": r.sub, "enable": r.ns, "revalidate_size": r.ns} {
			for _, value := range []string{"2", "\n"} {
				r.refused(r.fs.WriteFile(dir.Sub(attr).Name(), []byte(value)), syscall.EINVAL)
			}
		}
	},
	"an nguid returns with dashes": func(r *rig) {
		r.must(r.ns.Set(r.ctx, "device_nguid", "00112233445566778899aabbccddeeff"))
		r.shows(r.ns, "device_nguid", "00112233-4455-6677-8899-aabbccddeeff")
		for _, value := range []string{"0011", "0011223344556677 8899aabbccddeeff", "x0112233445566778899aabbccddeeff"} {
			r.refused(r.ns.Set(r.ctx, "device_nguid", value), syscall.EINVAL)
		}
	},
	"a uuid has dashes": func(r *rig) {
		r.must(r.ns.Set(r.ctx, "device_uuid", "00112233-4455-8677-8899-aabbccddeeff"))
		r.refused(r.ns.Set(r.ctx, "device_uuid", "10112233445586778899aabbccddeeff"), syscall.EINVAL)
	},
	"a serial has at most 20 characters": func(r *rig) {
		r.must(r.sub.Set(r.ctx, "attr_serial", "01234567890123456789"))
		r.shows(r.sub, "attr_serial", "01234567890123456789")
		r.refused(r.sub.Set(r.ctx, "attr_serial", "012345678901234567890"), syscall.EINVAL)
		r.refused(r.fs.WriteFile(r.sub.Sub("attr_serial").Name(), []byte("\n")), syscall.EINVAL)
	},
	"a serial is plain text": func(r *rig) {
		r.refused(r.sub.Set(r.ctx, "attr_serial", "a\tb"), syscall.EINVAL)
		r.refused(r.sub.Set(r.ctx, "attr_serial", "\u00e9"), syscall.EINVAL)
	},
	"a short serial is padded with blanks": func(r *rig) {
		r.must(r.sub.Set(r.ctx, "attr_serial", "short"))
		r.shows(r.sub, "attr_serial", "short               ")
	},
	"an enabled namespace keeps device and identity": func(r *rig) {
		r.enable()
		r.refused(r.ns.Set(r.ctx, "device_path", "/dev/other"), syscall.EBUSY)
		r.refused(r.ns.Set(r.ctx, "device_uuid", "00112233-4455-8677-8899-aabbccddeeff"), syscall.EBUSY)
		r.refused(r.ns.Set(r.ctx, "device_nguid", "00112233445566778899aabbccddeeff"), syscall.EBUSY)
	},
	"a size is looked at again while enabled only": func(r *rig) {
		r.refused(r.ns.Trigger(r.ctx, "revalidate_size", "1"), syscall.EINVAL)
		r.enable()
		r.must(r.ns.Trigger(r.ctx, "revalidate_size", "1"))
		r.must(r.ns.Trigger(r.ctx, "revalidate_size", "1"))
	},
	"a trigger cannot be read": func(r *rig) {
		_, err := r.ns.Read("revalidate_size")
		r.refused(err, syscall.EACCES)
	},
	"a missing device cannot be enabled": func(r *rig) {
		r.must(r.ns.Set(r.ctx, "device_path", "/dev/absent"))
		r.refused(r.ns.Set(r.ctx, "enable", "1"), syscall.ENOENT)
		r.shows(r.ns, "enable", "0")
	},
	"a namespace without a device cannot be enabled": func(r *rig) {
		r.refused(r.ns.Set(r.ctx, "enable", "1"), syscall.EINVAL)
		r.refused(r.fs.WriteFile(r.ns.Sub("device_path").Name(), []byte("\n")), syscall.EINVAL)
	},
	"a disabled namespace takes another device": func(r *rig) {
		r.enable()
		r.must(r.ns.Set(r.ctx, "enable", "0"))
		r.must(r.ns.Set(r.ctx, "device_path", "/dev/absent"))
		r.shows(r.ns, "device_path", "/dev/absent")
	},
	"an enabled namespace can be removed": func(r *rig) {
		r.enable()
		r.must(r.ns.Rmdir(r.ctx))
	},
	"any host is refused while hosts are listed": func(r *rig) {
		r.must(r.allowed.Link(r.ctx, r.host))
		r.refused(r.sub.Set(r.ctx, "attr_allow_any_host", "1"), syscall.EINVAL)
	},
	"a host is refused while any host is admitted": func(r *rig) {
		r.must(r.sub.Set(r.ctx, "attr_allow_any_host", "1"))
		r.refused(r.allowed.Link(r.ctx, r.host), syscall.EINVAL)
	},
	"only hosts are allowed hosts": func(r *rig) {
		r.refused(r.allowed.Link(r.ctx, r.sub), syscall.EINVAL)
	},
	"only subsystems are linked into a port": func(r *rig) {
		r.refused(r.served.Link(r.ctx, r.host), syscall.EINVAL)
	},
	"a listed host stays": func(r *rig) {
		r.must(r.allowed.Link(r.ctx, r.host))
		r.refused(r.host.Rmdir(r.ctx), syscall.EBUSY)
	},
	"a subsystem with a namespace stays": func(r *rig) {
		r.refused(r.sub.Rmdir(r.ctx), syscall.ENOTEMPTY)
	},
	"a subsystem with a host stays": func(r *rig) {
		r.must(r.ns.Rmdir(r.ctx))
		r.must(r.allowed.Link(r.ctx, r.host))
		r.refused(r.sub.Rmdir(r.ctx), syscall.ENOTEMPTY)
	},
	"a linked subsystem stays": func(r *rig) {
		r.listen()
		r.must(r.ns.Rmdir(r.ctx))
		r.refused(r.sub.Rmdir(r.ctx), syscall.EBUSY)
	},
	"a default directory stays": func(r *rig) {
		r.refused(r.allowed.Rmdir(r.ctx), syscall.EPERM)
	},
	"a port's attributes are of their kind": func(r *rig) {
		for attr, values := range map[string][]string{
			"addr_trtype": {"quic", "\n"}, "addr_adrfam": {"ipv5", "\n"}, "param_inline_data_size": {"x", "\n"},
		} {
			for _, value := range values {
				r.refused(r.fs.WriteFile(r.port.Sub(attr).Name(), []byte(value)), syscall.EINVAL)
			}
		}
	},
	"a port listens only with an address that is one": func(r *rig) {
		r.address("127.0.0.1")
		for attr, value := range map[string]string{"addr_adrfam": "ipv6", "addr_traddr": "host.example", "addr_trsvcid": "x"} {
			good, err := r.port.Read(attr)
			r.must(err)
			r.must(r.port.Set(r.ctx, attr, value))
			r.refused(r.served.Link(r.ctx, r.sub), syscall.EINVAL)
			r.must(r.port.Set(r.ctx, attr, good))
		}
		r.must(r.served.Link(r.ctx, r.sub))
	},
	"a port lacks nothing of its address when it listens": func(r *rig) {
		for _, missing := range []string{"addr_trtype", "addr_adrfam", "addr_traddr", "addr_trsvcid"} {
			for attr, value := range address("127.0.0.1") {
				if attr != missing {
					r.must(r.port.Set(r.ctx, attr, value))
				}
			}
			r.refused(r.served.Link(r.ctx, r.sub), syscall.EINVAL)
			r.must(r.port.Rmdir(r.ctx))
			r.must(r.port.Mkdir(r.ctx))
		}
	},
	"a port listens only at an address of the machine": func(r *rig) {
		r.address("203.0.113.1") // TEST-NET-3 of RFC 5737: nobody's
		r.refused(r.served.Link(r.ctx, r.sub), syscall.EADDRNOTAVAIL)
	},
	"an address is one port's": func(r *rig) {
		r.listen()
		other := r.root.Sub("ports", "40998")
		r.must(other.Mkdir(r.ctx))
		defer other.Rmdir(r.ctx)
		for attr, value := range address("127.0.0.1") {
			r.must(other.Set(r.ctx, attr, value))
		}
		r.refused(other.Sub("subsystems").Link(r.ctx, r.sub), syscall.EADDRINUSE)
		r.must(r.served.Unlink(r.ctx, ruleSubsystem))
		r.must(other.Sub("subsystems").Link(r.ctx, r.sub))
		r.must(other.Sub("subsystems").Unlink(r.ctx, ruleSubsystem))
	},
	"a port takes the in-capsule size it is given": func(r *rig) {
		r.must(r.port.Set(r.ctx, "param_inline_data_size", "8192"))
		r.listen()
		r.shows(r.port, "param_inline_data_size", "8192")
	},
	"a live port keeps its attributes": func(r *rig) {
		r.listen()
		for attr, value := range map[string]string{
			"addr_traddr": "127.0.0.2", "addr_trsvcid": "40998", "addr_adrfam": "ipv6",
			"addr_trtype": "loop", "param_inline_data_size": "8192",
		} {
			r.refused(r.port.Set(r.ctx, attr, value), syscall.EACCES)
		}
	},
	"a live port shows the transport's in-capsule size": func(r *rig) {
		r.listen()
		r.shows(r.port, "param_inline_data_size", "16384")
		r.must(r.served.Unlink(r.ctx, ruleSubsystem))
		r.shows(r.port, "param_inline_data_size", "16384")
		r.must(r.port.Set(r.ctx, "param_inline_data_size", "-1"))
	},
	"a live port stays": func(r *rig) {
		r.listen()
		r.refused(r.port.Rmdir(r.ctx), syscall.ENOTEMPTY)
	},
}

// Rules holds a configfs to every rule that Kernel enforces.
func Rules(t *testing.T, system func(t *testing.T) System) {
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) { rule(newRig(t, system(t))) })
	}
}
