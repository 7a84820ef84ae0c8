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
	Dir    configfs.Dir
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
}

func newRig(t *testing.T, s System) *rig {
	nvmet := s.Dir.Sub("nvmet")
	r := &rig{t: t, ctx: t.Context(), root: nvmet, device: s.Device}
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
	for attr, value := range map[string]string{
		"addr_trtype": "tcp", "addr_adrfam": "ipv4", "addr_traddr": "127.0.0.1", "addr_trsvcid": rulePort,
	} {
		r.must(r.port.Set(r.ctx, attr, value))
	}
	r.must(r.served.Link(r.ctx, r.sub))
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
	"namespace 0 does not exist": func(r *rig) {
		r.refused(r.sub.Sub("namespaces", "0").Mkdir(r.ctx), syscall.EINVAL)
	},
	"a port has a 16 bit number": func(r *rig) {
		r.refused(r.root.Sub("ports", "65536").Mkdir(r.ctx), syscall.EINVAL)
	},
	"nothing is made outside the object directories": func(r *rig) {
		r.refused(r.sub.Sub("other").Mkdir(r.ctx), syscall.EPERM)
	},
	"an nguid returns with dashes": func(r *rig) {
		r.must(r.ns.Set(r.ctx, "device_nguid", "00112233445566778899aabbccddeeff"))
		r.shows(r.ns, "device_nguid", "00112233-4455-6677-8899-aabbccddeeff")
	},
	"a uuid has dashes": func(r *rig) {
		r.must(r.ns.Set(r.ctx, "device_uuid", "00112233-4455-8677-8899-aabbccddeeff"))
		r.refused(r.ns.Set(r.ctx, "device_uuid", "10112233445586778899aabbccddeeff"), syscall.EINVAL)
	},
	"a serial has at most 20 characters": func(r *rig) {
		r.must(r.sub.Set(r.ctx, "attr_serial", "01234567890123456789"))
		r.shows(r.sub, "attr_serial", "01234567890123456789")
		r.refused(r.sub.Set(r.ctx, "attr_serial", "012345678901234567890"), syscall.EINVAL)
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
	"a port without an address does not listen": func(r *rig) {
		r.refused(r.served.Link(r.ctx, r.sub), syscall.EINVAL)
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
