// Package transporttest is the contract of a target as a suite. Every protocol's target
// passes it, on its fake and on the kernel.
package transporttest

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/pillar-csi/pillar/transport"
)

// Target is what every protocol's target can do, each call repeatable.
type Target interface {
	// Export makes the volume reachable exactly as asked; equal is no write. A device in
	// use, as hold says, is hold's error and not exported.
	Export(ctx context.Context, e transport.Export, hold transport.Hold) (transport.Target, error)
	// Unexport removes the export of this device; none is success.
	Unexport(ctx context.Context, volume, device string) error
	// Allow admits one initiator; no export is transport.ErrNotFound.
	Allow(ctx context.Context, volume, device, initiator string) error
	// Deny withdraws one and ends its sessions; a missing one is success.
	Deny(ctx context.Context, volume, device, initiator string, hold transport.Hold) error
	// Resize shows hosts the size the device has now; no export is success.
	Resize(ctx context.Context, volume, device string) error
	// List answers the exports of our prefix that the kernel has.
	List(ctx context.Context) ([]transport.Target, error)
}

// System is a target with nothing exported.
type System struct {
	Target       Target
	Kind         transport.Kind
	Devices      [2]string // nobody uses them
	Portal       transport.Portal
	Initiators   [2]string // in order
	InvalidNames []string  // no initiator could have one of these
}

// bench is a system with one export to try things on.
type bench struct {
	System
	t   *testing.T
	ctx context.Context
}

const volume = "pool/transporttest"

func (b *bench) spec(initiators ...string) transport.Export {
	return transport.Export{
		Kind: b.Kind, Volume: volume, DevicePath: b.Devices[0], Portal: b.Portal,
		ACL: true, Initiators: initiators,
	}
}

func free(string) (func() error, error) { return func() error { return nil }, nil }

func (b *bench) export(e transport.Export) transport.Target {
	b.t.Helper()
	got, err := b.Target.Export(b.ctx, e, free)
	if err != nil {
		b.t.Fatal(err)
	}
	return got
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// listed expects the kernel to have exactly this one export, or none.
func (b *bench) listed(want ...transport.Target) {
	b.t.Helper()
	got, err := b.Target.List(b.ctx)
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); err != nil || diff != "" {
		b.t.Fatalf("List: %v (-want +got):\n%s", err, diff)
	}
}

var cases = map[string]func(*bench){
	"an export is listed as it was answered": func(b *bench) {
		got := b.export(b.spec(b.Initiators[0]))
		if got.Portal != b.Portal || !got.Enabled || !got.ACL || got.ID == "" {
			b.t.Fatalf("Export = %+v, want it enabled with an ACL at %s", got, b.Portal)
		}
		b.listed(got)
	},
	"a second equal export answers the same": func(b *bench) {
		first := b.export(b.spec(b.Initiators[0]))
		if diff := cmp.Diff(first, b.export(b.spec(b.Initiators[0]))); diff != "" {
			b.t.Fatalf("second Export (-first +second):\n%s", diff)
		}
	},
	"an export sets the exact initiators": func(b *bench) {
		b.export(b.spec(b.Initiators[0]))
		b.listed(b.export(b.spec(b.Initiators[1])))
		b.listed(b.export(b.spec(b.Initiators[:]...)))
		b.listed(b.export(b.spec()))
	},
	"without an ACL everyone is admitted and no initiator is kept": func(b *bench) {
		e := b.spec(b.Initiators[0])
		b.export(e)
		e.ACL = false
		b.listed(b.export(e))
		b.must(b.Target.Allow(b.ctx, volume, b.Devices[0], b.Initiators[1]))
		b.must(b.Target.Deny(b.ctx, volume, b.Devices[0], b.Initiators[1], free))
		b.listed(b.export(e))
		b.listed(b.export(b.spec(b.Initiators[0])))
	},
	"allow and deny change one initiator": func(b *bench) {
		want := b.export(b.spec(b.Initiators[0]))
		want.Initiators = b.Initiators[:]
		for range 2 {
			b.must(b.Target.Allow(b.ctx, volume, b.Devices[0], b.Initiators[1]))
			b.listed(want)
		}
		want.Initiators = b.Initiators[1:]
		for range 2 {
			b.must(b.Target.Deny(b.ctx, volume, b.Devices[0], b.Initiators[0], free))
			b.listed(want)
		}
	},
	"the last denied leaves an export that admits nobody": func(b *bench) {
		want := b.export(b.spec(b.Initiators[0]))
		b.must(b.Target.Deny(b.ctx, volume, b.Devices[0], b.Initiators[0], free))
		want.Initiators = nil
		b.listed(want)
	},
	"nothing is exported: allow says so, deny and unexport have nothing to do": func(b *bench) {
		if err := b.Target.Allow(b.ctx, volume, b.Devices[0], b.Initiators[0]); !errors.Is(err, transport.ErrNotFound) {
			b.t.Errorf("Allow without an export = %v, want ErrNotFound", err)
		}
		b.must(b.Target.Deny(b.ctx, volume, b.Devices[0], b.Initiators[0], free))
		b.must(b.Target.Unexport(b.ctx, volume, b.Devices[0]))
	},
	"a name no initiator has is refused": func(b *bench) {
		b.export(b.spec(b.Initiators[0]))
		for _, name := range b.InvalidNames {
			if err := b.Target.Allow(b.ctx, volume, b.Devices[0], name); !errors.Is(err, transport.ErrInvalid) {
				b.t.Errorf("Allow(%q) = %v, want ErrInvalid", name, err)
			}
			if err := b.Target.Deny(b.ctx, volume, b.Devices[0], name, free); !errors.Is(err, transport.ErrInvalid) {
				b.t.Errorf("Deny(%q) = %v, want ErrInvalid", name, err)
			}
		}
	},
	"an export of another device is refused or left alone": func(b *bench) {
		want := b.export(b.spec(b.Initiators[0]))
		other := b.spec(b.Initiators[1])
		other.DevicePath = b.Devices[1]
		if _, err := b.Target.Export(b.ctx, other, free); !errors.Is(err, transport.ErrPrecondition) {
			b.t.Errorf("Export of another device = %v, want ErrPrecondition", err)
		}
		if err := b.Target.Allow(b.ctx, volume, b.Devices[1], b.Initiators[1]); !errors.Is(err, transport.ErrPrecondition) {
			b.t.Errorf("Allow for another device = %v, want ErrPrecondition", err)
		}
		b.must(b.Target.Deny(b.ctx, volume, b.Devices[1], b.Initiators[0], free))
		b.must(b.Target.Unexport(b.ctx, volume, b.Devices[1]))
		b.listed(want)
	},
	"a disabled export becomes serving and back": func(b *bench) {
		e := b.spec(b.Initiators[0])
		for _, e.Disabled = range []bool{true, false, true} {
			got := b.export(e)
			if got.Enabled == e.Disabled {
				b.t.Fatalf("Export with disabled %v = %+v", e.Disabled, got)
			}
			b.listed(got)
		}
	},
	"a held device is not exported": func(b *bench) {
		held := errors.New("held")
		_, err := b.Target.Export(b.ctx, b.spec(b.Initiators[0]), func(string) (func() error, error) { return nil, held })
		if !errors.Is(err, held) {
			b.t.Fatalf("Export of a held device = %v, want hold's error", err)
		}
		all, err := b.Target.List(b.ctx)
		if err != nil || len(all) > 0 && all[0].Enabled {
			b.t.Fatalf("a held device is exported: %+v, %v", all, err)
		}
		b.export(b.spec(b.Initiators[0]))
	},
	"resize leaves an export as it is, serving, disabled or none": func(b *bench) {
		b.must(b.Target.Resize(b.ctx, volume, b.Devices[0]))
		b.listed()
		e := b.spec(b.Initiators[0])
		for _, e.Disabled = range []bool{false, true} {
			want := b.export(e)
			for _, device := range b.Devices { // the second is another volume's
				b.must(b.Target.Resize(b.ctx, volume, device))
				b.listed(want)
			}
		}
	},
	"unexport leaves nothing and can be repeated": func(b *bench) {
		b.export(b.spec(b.Initiators[0]))
		for range 2 {
			b.must(b.Target.Unexport(b.ctx, volume, b.Devices[0]))
			b.listed()
		}
	},
}

// Run holds a target to the contract. system is called for each case.
func Run(t *testing.T, system func(t *testing.T) System) {
	for name, try := range cases {
		t.Run(name, func(t *testing.T) {
			b := &bench{System: system(t), t: t, ctx: t.Context()}
			t.Cleanup(func() {
				for _, d := range b.Devices {
					b.must(b.Target.Unexport(context.WithoutCancel(b.ctx), volume, d))
				}
			})
			try(b)
		})
	}
}
