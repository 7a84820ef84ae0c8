package nvmet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pillar-csi/pillar/storage/host/durable"
	"github.com/pillar-csi/pillar/transport"
	"github.com/pillar-csi/pillar/transport/configfs"
	"github.com/pillar-csi/pillar/transport/configfs/configfstest"
)

const (
	volume = "vg0/pvc-1"
	device = "/dev/vg0/pvc-1"
	host1  = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-4111-8111-111111111111"
	host2  = "nqn.2014-08.org.nvmexpress:uuid:22222222-2222-4222-8222-222222222222"
	nqn    = Prefix + "vg0.pvc-1"
	subDir = "nvmet/subsystems/" + nqn
)

var portal = transport.Portal{Address: "10.66.0.11", Port: 4420}

func export(change func(*transport.Export)) transport.Export {
	e := transport.Export{
		Kind: transport.NVMeTCP, Volume: volume, DevicePath: device,
		Portal: portal, ACL: true, Initiators: []string{host1},
	}
	if change != nil {
		change(&e)
	}
	return e
}

func free(string) (func() error, error) { return func() error { return nil }, nil }

func fixture(t *testing.T) (*configfstest.Kernel, *Target) {
	k := configfstest.New()
	return k, New(k.Dir(), Config{IdentityDir: t.TempDir()})
}

// TestTarget_traces holds what the kernel sees of each operation, in order. setup runs
// first and is not part of the trace.
func TestTarget_traces(t *testing.T) {
	both := export(func(e *transport.Export) { e.Initiators = []string{host1, host2} })
	tests := map[string]struct {
		setup, act func(*testing.T, *Target)
	}{
		"export":          {none, exporting(export(nil))},
		"export_open":     {none, exporting(export(func(e *transport.Export) { e.ACL = false }))},
		"export_disabled": {none, exporting(export(func(e *transport.Export) { e.Disabled = true }))},
		"export_again":    {exporting(export(nil)), exporting(export(nil))},
		"export_second_volume": {exporting(export(nil)), exporting(export(func(e *transport.Export) {
			e.Volume, e.DevicePath = "vg0/pvc-2", "/dev/vg0/pvc-2"
		}))},
		"export_ipv6_in_capsule": {none, exporting(export(func(e *transport.Export) {
			e.Portal, e.InCapsuleDataSize = transport.Portal{Address: "fd00::11"}, new(int32(8192))
		}))},
		"open_to_restricted": {exporting(export(func(e *transport.Export) { e.ACL = false })), exporting(export(nil))},
		"restricted_to_open": {exporting(export(nil)), exporting(export(func(e *transport.Export) { e.ACL = false }))},
		"host_removed":       {exporting(both), exporting(export(nil))},
		"disable":            {exporting(export(nil)), exporting(export(func(e *transport.Export) { e.Disabled = true }))},
		"allow": {exporting(export(nil)), func(t *testing.T, tgt *Target) {
			must(t, tgt.Allow(t.Context(), volume, device, host2))
		}},
		"deny": {exporting(both), func(t *testing.T, tgt *Target) {
			must(t, tgt.Deny(t.Context(), volume, device, host1, free))
		}},
		"resize": {exporting(export(nil)), func(t *testing.T, tgt *Target) {
			must(t, tgt.Resize(t.Context(), volume, device))
			must(t, tgt.Resize(t.Context(), volume, device))
		}},
		"resize_disabled": {exporting(export(func(e *transport.Export) { e.Disabled = true })), func(t *testing.T, tgt *Target) {
			must(t, tgt.Resize(t.Context(), volume, device))
		}},
		"unexport": {exporting(both), func(t *testing.T, tgt *Target) {
			must(t, tgt.Unexport(t.Context(), volume, device))
		}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k, tgt := fixture(t)
			tc.setup(t, tgt)
			k.Trace()
			tc.act(t, tgt)
			golden(t, name, shorten(k.Trace()))
		})
	}
}

func none(*testing.T, *Target) {}

func exporting(e transport.Export) func(*testing.T, *Target) {
	return func(t *testing.T, tgt *Target) {
		if _, err := tgt.Export(t.Context(), e, free); err != nil {
			t.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestTarget_Export_refuses: each refusal leaves the kernel as it was.
func TestTarget_Export_refuses(t *testing.T) {
	tests := map[string]struct {
		change func(*transport.Export)
		want   error
		text   string
	}{
		"another device":       {func(e *transport.Export) { e.DevicePath = os.DevNull }, nil, "compare backing devices"},
		"no address":           {func(e *transport.Export) { e.Portal.Address = "storage-1" }, transport.ErrInvalid, "bind address"},
		"host is a path":       {func(e *transport.Export) { e.Initiators = []string{"../x"} }, transport.ErrInvalid, "is not an NQN"},
		"in-capsule on live":   {func(e *transport.Export) { e.InCapsuleDataSize = new(int32(8192)) }, transport.ErrPrecondition, "param_inline_data_size 16384, asked for 8192"},
		"negative in-capsule":  {func(e *transport.Export) { e.InCapsuleDataSize = new(int32(-1)) }, transport.ErrInvalid, "in-capsule"},
		"odd transfer size":    {func(e *transport.Export) { e.MaxDataTransferSize = new(int32(5000)) }, transport.ErrInvalid, "power of two"},
		"volume name too long": {func(e *transport.Export) { e.Volume += strings.Repeat("n", 223) }, transport.ErrInvalid, "at most 223"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			k, tgt := fixture(t)
			exporting(export(nil))(t, tgt)
			k.Trace()
			_, err := tgt.Export(t.Context(), export(tc.change), free)
			if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
				t.Errorf("Export = %v, want %v with %q", err, tc.want, tc.text)
			}
			if trace := k.Trace(); len(trace) > 0 {
				t.Errorf("a refused Export wrote:\n%s", shorten(trace))
			}
		})
	}
}

// Two volumes can derive one NQN. Devices that exist are compared by number.
func TestTarget_collision(t *testing.T) {
	k, tgt := fixture(t)
	exporting(export(func(e *transport.Export) { e.DevicePath = os.DevNull }))(t, tgt)
	k.Trace()
	_, err := tgt.Export(t.Context(), export(func(e *transport.Export) { e.DevicePath = "/dev/zero" }), free)
	if !errors.Is(err, transport.ErrPrecondition) || !strings.Contains(err.Error(), os.DevNull) || !strings.Contains(err.Error(), "/dev/zero") {
		t.Errorf("Export on another device = %v, want ErrPrecondition with both", err)
	}
	if err := tgt.Allow(t.Context(), volume, "/dev/zero", host2); !errors.Is(err, transport.ErrPrecondition) {
		t.Errorf("Allow on another device = %v, want ErrPrecondition", err)
	}
	must(t, tgt.Deny(t.Context(), volume, "/dev/zero", host1, free))
	must(t, tgt.Resize(t.Context(), volume, "/dev/zero"))
	must(t, tgt.Unexport(t.Context(), volume, "/dev/zero"))
	if trace := k.Trace(); len(trace) > 0 {
		t.Errorf("calls for another volume wrote:\n%s", shorten(trace))
	}
}

// meddling runs a function when a subsystem is first about to be made.
type meddling struct {
	*configfstest.Kernel
	done atomic.Bool
	run  func()
}

func (m *meddling) Mkdir(name string) error {
	if name == subDir && !m.done.Swap(true) {
		m.run()
	}
	return m.Kernel.Mkdir(name)
}

// N-14: of two volumes that derive one NQN and are exported at once, one is refused before
// its device could get under the other's name.
func TestTarget_Export_collisionAtOnce(t *testing.T) {
	m := &meddling{Kernel: configfstest.New()}
	tgt := New(configfs.On(m), Config{IdentityDir: t.TempDir()})
	slow := func(string) (func() error, error) {
		time.Sleep(100 * time.Millisecond) // until the other has written its device too
		return func() error { return nil }, nil
	}
	second := make(chan error, 1)
	m.run = func() {
		go func() {
			_, err := tgt.Export(t.Context(), export(func(e *transport.Export) { e.DevicePath = "/dev/zero" }), slow)
			second <- err
		}()
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := tgt.Export(t.Context(), export(func(e *transport.Export) { e.DevicePath = os.DevNull }), slow); err != nil {
		t.Errorf("Export = %v", err)
	}
	if err := <-second; !errors.Is(err, transport.ErrPrecondition) {
		t.Errorf("Export of another device at the same time = %v, want ErrPrecondition", err)
	}
	if trace := strings.Join(m.Trace(), "\n"); strings.Contains(trace, "/dev/zero") {
		t.Errorf("the refused device was in the namespace:\n%s", trace)
	}
}

func TestTarget_Export_heldDevice(t *testing.T) {
	k, tgt := fixture(t)
	held := func(string) (func() error, error) { return nil, syscall.EBUSY }
	if _, err := tgt.Export(t.Context(), export(nil), held); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("Export of a held device = %v, want EBUSY", err)
	}
	for _, line := range k.Trace() {
		if strings.Contains(line, "enable 1") || strings.HasPrefix(line, "link nvmet/ports") {
			t.Errorf("Export of a held device wrote %q", line)
		}
	}
}

// The claim covers the write that enables, and ends.
func TestTarget_Export_enablesUnderClaim(t *testing.T) {
	k, tgt := fixture(t)
	claimed, releases := false, 0
	k.OnEffect = func(line string) error {
		if strings.HasSuffix(line, "enable 1") && !claimed {
			t.Error("enabled without the claim")
		}
		return nil
	}
	hold := func(string) (func() error, error) {
		claimed = true
		return func() error { claimed = false; releases++; return nil }, nil
	}
	if _, err := tgt.Export(t.Context(), export(nil), hold); err != nil || releases != 1 {
		t.Errorf("Export = %v with %d releases, want one", err, releases)
	}
}

// An enabled namespace keeps the identity it has, and so do its rebuilds.
func TestTarget_Export_pinsIdentity(t *testing.T) {
	k, tgt := fixture(t)
	exporting(export(nil))(t, tgt)
	foreign := Identity{UUID: "5a0e7b52-18b7-4c0e-9d52-6c1f7c9a1b11", NGUID: "01020304-0506-0708-090a-0b0c0d0e0f10", Serial: "oldserial"}
	k.Plant(subDir+"/namespaces/1/device_uuid", foreign.UUID)
	k.Plant(subDir+"/namespaces/1/device_nguid", foreign.NGUID)
	k.Plant(subDir+"/attr_serial", fmt.Sprintf("%-20s", foreign.Serial))
	k.Trace()
	exporting(export(nil))(t, tgt)
	if trace := k.Trace(); len(trace) > 0 {
		t.Errorf("Export over another identity wrote:\n%s", shorten(trace))
	}
	k2 := configfstest.New() // the machine rebooted
	tgt.nvmet = k2.Dir().Sub("nvmet")
	exporting(export(nil))(t, tgt)
	s, err := tgt.subsystem(nqn)
	if err != nil || s.id != foreign {
		t.Errorf("after a reboot the identity is %+v, %v, want %+v", s.id, err, foreign)
	}
	must(t, tgt.Unexport(t.Context(), volume, device))
	exporting(export(nil))(t, tgt)
	if s, err = tgt.subsystem(nqn); err != nil || s.id != derive(nqn) {
		t.Errorf("after unexport the identity is %+v, %v, want the derived", s.id, err)
	}
}

func TestTarget_Export_corruptPin(t *testing.T) {
	k, tgt := fixture(t)
	must(t, os.WriteFile(filepath.Join(tgt.cfg.IdentityDir, durable.Name(volume)+".json"), []byte("{"), 0o600))
	if _, err := tgt.Export(t.Context(), export(nil), free); err == nil {
		t.Error("Export with a corrupt pinned record succeeded")
	}
	if trace := k.Trace(); len(trace) > 0 {
		t.Errorf("Export with a corrupt pinned record wrote:\n%s", shorten(trace))
	}
}

func TestTarget_Allow_withoutExport(t *testing.T) {
	_, tgt := fixture(t)
	if err := tgt.Allow(t.Context(), volume, device, host1); !errors.Is(err, transport.ErrNotFound) {
		t.Errorf("Allow without an export = %v, want ErrNotFound", err)
	}
	if err := tgt.Allow(t.Context(), volume, device, "../../x"); !errors.Is(err, transport.ErrInvalid) {
		t.Errorf("Allow of a path = %v, want ErrInvalid", err)
	}
	must(t, tgt.Deny(t.Context(), volume, device, host1, free))
	must(t, tgt.Resize(t.Context(), volume, device))
	must(t, tgt.Unexport(t.Context(), volume, device))
}

func TestTarget_List(t *testing.T) {
	k, tgt := fixture(t)
	exporting(export(nil))(t, tgt)
	must(t, k.Mkdir("nvmet/subsystems/nqn.2020-01.com.example:foreign"))
	got, err := tgt.List(t.Context())
	want := []transport.Target{{ID: nqn, Ref: nqn, Portal: portal, Enabled: true, ACL: true, Initiators: []string{host1}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("List: %v (-want +got):\n%s", err, diff)
	}
}

func TestTarget_Users(t *testing.T) {
	k, tgt := fixture(t)
	foreign := "nqn.2020-01.com.example:foreign"
	must(t, k.Mkdir("nvmet/subsystems/"+foreign))
	must(t, k.Mkdir("nvmet/subsystems/"+foreign+"/namespaces/7"))
	must(t, k.WriteFile("nvmet/subsystems/"+foreign+"/namespaces/7/device_path", []byte(os.DevNull)))
	exporting(export(func(e *transport.Export) { e.DevicePath, e.Disabled = "/dev/absent", true }))(t, tgt)
	got, err := tgt.Users(t.Context(), 1, 3) // Documentation/admin-guide/devices.txt: null
	if diff := cmp.Diff([]string{foreign}, got); diff != "" || err != nil {
		t.Errorf("Users(1:3): %v (-want +got):\n%s", err, diff)
	}
}
