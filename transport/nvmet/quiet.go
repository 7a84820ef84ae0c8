package nvmet

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/pillar-csi/pillar/transport"
)

// Quiet keeps hosts out of a portal until loud: while its port is opened for many volumes, say.
// Where the kernel cannot do it all goes on without, and Config.Unquiet is told.
func (t *Target) Quiet(portal transport.Portal) (loud func()) {
	if t.cfg.Quiet == nil {
		return func() {}
	}
	addr, err := netip.ParseAddr(portal.Address)
	var end func() error
	if err == nil {
		end, err = t.cfg.Quiet(netip.AddrPortFrom(addr, portal.Port))
	}
	if err != nil {
		t.unquiet(err)
		return func() {}
	}
	return func() {
		if err := end(); err != nil {
			t.unquiet(err)
		}
	}
}

func (t *Target) unquiet(err error) {
	if t.cfg.Unquiet != nil {
		t.cfg.Unquiet(err)
	}
}

// KeepOut has new connections to portal refused, in the network namespace of this process, as
// if nobody listened there: hosts try again later. Connections that are there go on. It lasts
// until loud, and no longer than this process.
//
// It is a BPF program that the kernel asks for the listener of each new connection (Linux 5.9
// and later, BPF_PROG_TYPE_SK_LOOKUP; CAP_BPF and CAP_NET_ADMIN).
func KeepOut(portal netip.AddrPort) (loud func() error, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("keep hosts out of %s: %w", portal, err)
		}
	}()
	refuse, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "pillar_quiet", Type: ebpf.SkLookup, AttachType: ebpf.AttachSkLookup, Instructions: refusal(portal), License: "MIT",
	})
	if err != nil {
		return nil, err
	}
	defer refuse.Close() // the link keeps it
	ns, err := os.Open("/proc/self/ns/net")
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	attached, err := link.AttachNetNs(int(ns.Fd()), refuse)
	if err != nil {
		return nil, err
	}
	return attached.Close, nil
}

// Where struct bpf_sk_lookup (linux/bpf.h) has what the program looks at, and what it answers.
const (
	lookupFamily   = 8
	lookupProtocol = 12
	lookupAddress4 = 40 // in network byte order, as the address below
	lookupAddress6 = 44
	lookupPort     = 60 // in host byte order

	skDrop, skPass = 0, 1
)

// refusal drops what is for portal and lets all else pass.
func refusal(portal netip.AddrPort) asm.Instructions {
	var is asm.Instructions
	want := func(offset int16, value uint32) {
		is = append(is, asm.LoadMem(asm.R2, asm.R1, offset, asm.Word), asm.JNE.Imm32(asm.R2, int32(value), "pass"))
	}
	want(lookupProtocol, unix.IPPROTO_TCP)
	want(lookupPort, uint32(portal.Port()))
	family, offset := uint32(unix.AF_INET), int16(lookupAddress4)
	if portal.Addr().Is6() {
		family, offset = unix.AF_INET6, lookupAddress6
	}
	if !portal.Addr().IsUnspecified() { // else it listens at every address
		want(lookupFamily, family)
		for word := portal.Addr().AsSlice(); len(word) > 0; word = word[4:] {
			want(offset, binary.NativeEndian.Uint32(word))
			offset += 4
		}
	}
	return append(is, asm.Mov.Imm(asm.R0, skDrop), asm.Return(),
		asm.Mov.Imm(asm.R0, skPass).WithSymbol("pass"), asm.Return())
}
