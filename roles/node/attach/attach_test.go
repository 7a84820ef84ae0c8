package attach

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/roles/csiserve"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/nvmf"
)

// host answers every call with the same device or error and keeps what it was asked.
type host struct {
	dev    nvmf.Device
	err    error
	target nvmf.Target
	limit  int64
}

func (h *host) Attach(_ context.Context, t nvmf.Target) (nvmf.Device, error) {
	h.target = t
	return h.dev, h.err
}
func (h *host) Device(context.Context, string) (nvmf.Device, error)    { return h.dev, h.err }
func (h *host) Detach(context.Context, string, transport.Portal) error { return h.err }
func (h *host) Resize(_ context.Context, _ string, atLeast int64) (int64, error) {
	return atLeast, h.err
}
func (h *host) Limit(_ context.Context, _ string, bytes int64) error {
	h.limit = bytes
	return h.err
}

func TestAttacher(t *testing.T) {
	source, err := Parse(with(Prefix+"nvmeof-ctrl-loss-tmo", "60"), map[string]string{Prefix + "nvmeof-hdr-digest": "true"}, 4096)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{dev: nvmf.Device{Path: "/dev/nvme0n1", Major: 259, Minor: 1, Created: true}}
	a := New(h, false)
	got, err := a.Attach(t.Context(), source)
	if want := (Device{Path: "/dev/nvme0n1", Major: 259, Minor: 1, Created: true}); err != nil || got != want {
		t.Errorf("Attach = %+v, %v, want %+v", got, err, want)
	}
	want := nvmf.Target{NQN: volume["target_id"], Portal: transport.Portal{Address: "10.0.0.1", Port: 4420}, CtrlLossTmo: ptr(60), HdrDigest: true}
	if diff := cmp.Diff(want, h.target); diff != "" {
		t.Errorf("connect (-want +got):\n%s", diff)
	}
	if err := a.Limit(t.Context(), source); err != nil || h.limit != 4<<20 {
		t.Errorf("Limit = %v with %d bytes, want 4 MiB", err, h.limit)
	}
	if size, err := a.Resize(t.Context(), source, 8<<20); err != nil || size != 8<<20 {
		t.Errorf("Resize = %d, %v, want 8 MiB", size, err)
	}
}

func TestAttacher_Codes(t *testing.T) {
	source, err := Parse(volume, nil, 4096)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		err  error
		want csiserve.Code
	}{
		"not loaded":     {fmt.Errorf("x: %w", transport.ErrPrecondition), csiserve.FailedPrecondition},
		"bad value":      {fmt.Errorf("x: %w", transport.ErrInvalid), csiserve.InvalidArgument},
		"wait timed out": {fmt.Errorf("x: %w", context.DeadlineExceeded), csiserve.Internal},
		"kernel says no": {errors.New("EIO"), csiserve.Internal},
		"gone meanwhile": {fmt.Errorf("x: %w", transport.ErrNotFound), csiserve.Internal},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := New(&host{err: tc.err}, false).Attach(t.Context(), source); csiserve.CodeOf(err) != tc.want {
				t.Errorf("Attach = %v, want code %v", err, tc.want)
			}
			if _, err := New(&host{err: tc.err}, false).Resize(t.Context(), source, 1); csiserve.CodeOf(err) != tc.want {
				t.Errorf("Resize = %v, want code %v", err, tc.want)
			}
		})
	}
}

func TestAttacher_Find(t *testing.T) {
	source, err := Parse(volume, nil, 4096)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		err   error
		found bool
		fails bool
	}{
		"connected":     {nil, true, false},
		"not connected": {fmt.Errorf("x: %w", transport.ErrNotFound), false, false},
		"cannot tell":   {errors.New("EIO"), false, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, found, err := New(&host{err: tc.err}, false).Find(t.Context(), source)
			if found != tc.found || (err != nil) != tc.fails {
				t.Errorf("Find = %v, %v, want %v, error %v", found, err, tc.found, tc.fails)
			}
		})
	}
}

func TestAttacher_Offers(t *testing.T) {
	err := New(&host{}, false).Offers(Source{Protocol: transport.ISCSI})
	if csiserve.CodeOf(err) != csiserve.FailedPrecondition || !strings.Contains(err.Error(), "iSCSI initiator is disabled") ||
		!strings.Contains(err.Error(), "iscsi_tcp") {
		t.Errorf("Offers(iscsi) without the module = %v", err)
	}
	for _, kind := range []transport.Kind{transport.ISCSI, transport.NFS} {
		if err := New(&host{}, true).Offers(Source{Protocol: kind}); csiserve.CodeOf(err) != csiserve.Unimplemented {
			t.Errorf("Offers(%s) = %v, want Unimplemented", kind, err)
		}
	}
	if err := New(&host{}, false).Offers(Source{Protocol: transport.NVMeTCP}); err != nil {
		t.Errorf("Offers(nvmeof-tcp) = %v", err)
	}
}

func TestDerived(t *testing.T) {
	tests := map[string]string{
		"storage-1/nvmeof-tcp/lvm-lv/vg0/pvc-1": "nqn.2026-01.com.bhyoo.pillar-csi:vg0.pvc-1",
		"storage-1/iscsi/lvm-lv/vg0/pvc-1":      "",
		"storage-1/nvmeof-tcp/lvm-lv/vg0":       "",
		"storage-1/nvmeof-tcp/lvm-lv/a/b/c":     "",
		"":                                      "",
	}
	for id, want := range tests {
		got, ok := Derived(id)
		if ok != (want != "") || ok && got.NVMe.SubsysNQN != want {
			t.Errorf("Derived(%q) = %+v, %v, want %q", id, got.NVMe, ok, want)
		}
	}
}
